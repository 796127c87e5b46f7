"""The error tree of the lazy core.

Owns: every exception type that the core raises.  Each child also inherits the built-in type that users of an eager library
expect, so that `except ValueError` written for NumPy keeps working.  Must not import anything of the package.
"""


class LazyError(Exception):
    """Base of every error raised by the lazy core and its frontends."""


class ShapeError(LazyError, ValueError):
    """Operand shapes do not fit an operation."""


class DtypeError(LazyError, TypeError):
    """Operand dtypes do not fit an operation, or a dtype has no counterpart on the device."""


class DeviceError(LazyError, RuntimeError):
    """A device that does not exist, or operands on different devices."""


class UnsupportedError(LazyError, NotImplementedError):
    """An operation, layout or attribute that the system cannot record or lower."""


class BarrierError(LazyError, RuntimeError):
    """A barrier, or a host read that needs one, where none can run (inside a lowering or a callback)."""


class ExecutionError(LazyError, RuntimeError):
    """Compiling or executing a trace failed; the pending values are unchanged."""


class StrictError(LazyError, RuntimeError):
    """An event that `lazy_core.strict` forbids took place."""
