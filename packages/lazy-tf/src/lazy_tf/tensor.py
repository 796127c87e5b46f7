"""What a TensorFlow handle on the lazy device stands for.

Owns: `Tensor` (a value of the core, or a constant that the host knows), `Variable` (a resource that is rebound functionally), `Bundle`
(a variant that holds other entries) and `Foreign` (a CPU handle of what the device cannot hold, such as a string).  May import `capi`,
`native` and the core.

A number that came from Python, or was computed from shapes, stays on the host (`Tensor.host`) until an operation on the device needs it;
then a scalar becomes a constant of the trace (`lazy_core.ir.const`) and anything larger a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazy_core import ir, values

from . import capi, native

SMALL = 64
"""What has more elements than this is never kept on the host beside the device, nor computed there."""


after_read: Callable[[], None] | None = None
"""Called when the host has read from the device, while something waits for that (see `guards`)."""


class PlainEntry:
    """What a handle on the device may stand for, where there is no extension: see `csrc/entry.h`."""

    __slots__ = ("dims", "dtype", "handle_dtype")

    def __init__(self, dtype: int, dims: tuple[int, ...]) -> None:
        self.dtype = self.handle_dtype = dtype
        self.dims = dims


class PlainTensor(PlainEntry):
    """The attributes of `Tensor`, where there is no extension."""

    __slots__ = ("_bits", "_static", "cpu", "foldable", "host", "value")

    def __init__(self, dtype: int, dims: tuple[int, ...], value: Any, host: np.ndarray | None = None, foldable: bool = False) -> None:
        super().__init__(dtype, dims)
        self.value = value
        self.host = host
        self.foldable = foldable
        self.cpu: int | None = None
        self._static: Any = None
        self._bits: Any = None


EXTENSION: Any = native.extension()
if not TYPE_CHECKING and EXTENSION is not None:
    PlainEntry, PlainTensor = EXTENSION.Entry, EXTENSION.Tensor


class Tensor(PlainTensor):
    """A tensor of numbers: `Tensor(dtype, dims, value, host=None, foldable=False)`.

    Attributes:
        dtype: TensorFlow's enum.
        dims: the dimensions.
        value: a `lazy_core.values.Value`, a constant, or None while only the host knows it.
        host: the contents where the host knows them, else None.
        cpu: the address of a CPU handle with the contents, which is the tensor's, or None; only with the extension.
        foldable: whether `host` came from the program text or from shapes, so that computing with it on the host is right.
    """

    __slots__ = ()

    def operand(self) -> Any:
        """What to hand to `values.record`: a Value or a constant."""
        value = self.value
        if value is None:
            host = self.host
            if host is None or (self.cpu is not None and not self.foldable):
                value = values.from_array(EXTENSION.view(self))
            else:
                value = ir.const(host[()], host.dtype) if host.ndim == 0 else values.from_array(host)
            self.value = value
        return value

    def numpy(self) -> np.ndarray:
        """The contents on the host; a barrier if they are pending."""
        host = self.host
        if host is None:
            if self.cpu is not None:
                EXTENSION.note_read(self)
                host = EXTENSION.view(self)
            else:
                if EXTENSION is not None:
                    EXTENSION.note_wait()
                host = values.to_host(self.value)
                if after_read is not None:
                    after_read()
            if host.size <= SMALL:
                self.host = host
        return host

    def static(self) -> Any:
        """The contents as nested tuples (or one number) for a static attribute; a barrier if they are pending."""
        found = self._static
        if found is None:
            found = self._static = _tuples(self.numpy().tolist())
        return found

    def bits(self) -> Any:
        """A key of the contents, exact by bits, of a tensor that the host knows."""
        found = self._bits
        if found is None:
            assert self.host is not None
            found = self._bits = (self.dims, self.host.tobytes())
        return found


def _tuples(nested: Any) -> Any:
    return tuple([_tuples(n) for n in nested]) if isinstance(nested, list) else nested


def of_value(value: Any, dtype: int) -> Tensor:
    """A tensor that is this value of the core."""
    return Tensor(dtype, value.shape.dims, value)


def of_host(array: np.ndarray, dtype: int, foldable: bool = True) -> Tensor:
    """A tensor whose contents the host knows; nobody may write to the array again."""
    return Tensor(dtype, array.shape, None, array, foldable)


def device_tensor(array: np.ndarray, dtype: int) -> Tensor:
    """A tensor on the device with these contents, which the host forgets."""
    return of_value(values.from_array(np.array(array, order="C")), dtype)


def on_device(tensor: Tensor) -> Tensor:
    """A tensor that is no constant of the program: an operation on it takes it as an input."""
    if tensor.value is None and tensor.cpu is not None and not tensor.foldable:
        return tensor
    if tensor.value is None or tensor.value.__class__ is ir.Const:
        return device_tensor(tensor.numpy(), tensor.dtype)
    return tensor


class Variable(PlainEntry):
    """A resource variable: a name for the tensor that it holds now, or None before the first assignment.

    Attributes:
        dtype: of what it holds.
        dims: of the handle itself, which is a scalar.
        shape: what was declared, or None.
        name: the shared name.
        current: the tensor.
        twin: a variable on the CPU that stands in for this one while CPU kernels run, or None (see `twins`).
        agreed: the tensor that the twin holds too, or None.
        lent: whether the twin holds the contents and `current` does not.
    """

    __slots__ = ("agreed", "current", "lent", "name", "shape", "twin")

    def __init__(self, dtype: int, shape: tuple[int, ...] | None, name: str) -> None:
        super().__init__(dtype, ())
        self.handle_dtype = capi.RESOURCE
        self.shape = shape
        self.name = name
        self.current: Tensor | None = None
        self.twin: Foreign | None = None
        self.agreed: Tensor | None = None
        self.lent = False

    def assign(self, tensor: Tensor) -> None:
        """Rebind to a tensor; a host constant becomes a leaf, so that a counter is an input of the program and not a part of it."""
        self.current = on_device(tensor)


class Foreign:
    """A CPU handle; owned (and deleted with this object) unless it was only borrowed."""

    __slots__ = ("dtype", "handle", "owned")

    def __init__(self, handle: int, owned: bool) -> None:
        self.handle = handle
        self.owned = owned
        self.dtype: int = capi.handle_dtype(handle)

    def take(self) -> int:
        """The handle, which the caller now owns."""
        if self.owned:
            self.owned = False
            return self.handle
        return capi.copy_handle(self.handle)

    def __del__(self, _delete: Any = capi.delete_handle) -> None:
        if self.owned:
            self.owned = False
            _delete(self.handle)


class Bundle(PlainEntry):
    """A variant that holds entries: TensorFlow's lists of tensors, and its optionals.  Never changed once it is made.

    Attributes:
        kind: "list", "optional" or "none" (an optional without a value).
        entries: what it holds; None in a list for an element that was never set.
        element_dtype: of a list, TensorFlow's enum; else 0.
        element_dims: of a list, what is known of the elements' dimensions, -1 where nothing is; None if not even their number is.
    """

    __slots__ = ("element_dims", "element_dtype", "entries", "kind")

    def __init__(self, kind: str, entries: Sequence[Any], element_dtype: int = 0, element_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(capi.VARIANT, ())
        self.kind = kind
        self.entries = tuple(entries)
        self.element_dtype = element_dtype
        self.element_dims = element_dims


Entry = Tensor | Variable | Bundle | Foreign

live_table: dict[int | None, Tensor | Variable | Bundle] = {}
"""What each handle that TensorFlow holds stands for, by what it calls a device pointer; unused where there is the extension."""

live_handles: Callable[[], int] = live_table.__len__ if EXTENSION is None else EXTENSION.live_handles
"""How many handles on the device TensorFlow holds."""
