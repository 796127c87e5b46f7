"""The core's conformance kit on this frontend: each operation of its table, in each dtype, against the library itself.

An operation that the library has and that you cannot do is a gap with a reason: `gaps={"sort": {"status": "notimpl", "reason": "..."}}`.
"""

from lazy_mylib.frontend import FRONTEND

from lazy_core.testing import basics_test, conformance_test

test_operations = conformance_test(FRONTEND)
test_basics = basics_test(FRONTEND)
