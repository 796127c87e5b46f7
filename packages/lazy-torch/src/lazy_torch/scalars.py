"""Which numbers among the arguments are baked into the graph and which are fed at run time.

Owns: what has been seen of numbers by kind of operation. Core's rule lifts a number when the same operation on the same inputs shows
another value in a later trace. An optimizer's second step has other inputs than its first (its state exists by then), so that rule alone
would compile three programs: hence a number is also lifted when the same kind of operation (name, geometries, other arguments) shows a
value in a later trace that it has never shown before. May import `lazy_core.trace`.
"""

from __future__ import annotations

from lazy_core import trace

_sites = trace.current().sites
_VALUES_KEPT = 64


class Seen:
    """The values that each kind of operation has shown, and the traces that they were first seen in."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, tuple[int, dict[bytes, int]]] = {}

    def should_lift(self, site: bytes, kind: bytes, values: bytes) -> bool:
        """Whether numbers at a site (operation and inputs) are fed at run time; called when its key is not in the table.

        Args:
            site: operation, inputs and arguments, without the numbers.
            kind: the same without the inputs' identities.
            values: the numbers' bits.
        """
        now = _sites.epoch
        first, known = self._kinds.setdefault(kind, (now, {}))
        shown = known.get(values, now)
        if len(known) < _VALUES_KEPT:
            known.setdefault(values, now)
        return _sites.should_lift(site) or (shown == now and first < now)

    def clear(self) -> None:
        """Forget everything."""
        self._kinds.clear()
