"""The core's conformance kit on this frontend, against the library itself: each operation of its table, in each dtype, and whole programs.

With `tiers=TIERS` and `placements=PLACEMENTS` each operation runs natively too, and with barriers in other places, as the programs do.

An operation that the library has and that you cannot do is a gap with a reason: `gaps={"sort": {"status": "notimpl", "reason": "..."}}`.
"""

from lazy_mylib.frontend import FRONTEND

from lazy_core.testing import basics_test, conformance_test, programs_test

test_operations = conformance_test(FRONTEND)
test_programs = programs_test(FRONTEND)
test_basics = basics_test(FRONTEND)
