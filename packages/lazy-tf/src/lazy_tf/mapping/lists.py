"""Lists of tensors and optionals: variants that hold entries of the device.

Owns: handlers of `TensorList*` (what `tf.TensorArray` becomes in a function) and of `Optional*`.  A list is a tuple of entries, so
reading, writing and taking its length cost no operation of the trace; stacking and unstacking record one.  Source: the kernels in
TensorFlow's `list_kernels.h` and `optional_ops.cc`.  May import `capi`, `attributes`, `fallback`, `functions`, `stepping`, `tensor`,
`host`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import capi, fallback, functions
from ..attributes import Signature, op_info
from ..stepping import stepper
from ..tensor import Bundle, Entry, Foreign, Tensor, of_host
from .host import special

_INT32 = capi.TF_DTYPES[np.dtype(np.int32)]
_BOOL = capi.TF_DTYPES[np.dtype(bool)]


def _apply(name: str, inputs: list[Any], **attributes: Any) -> list[Any]:
    """Run an operation on the device."""
    assert functions.apply is not None
    info = op_info(name)
    return functions.apply(info, info.by_protos(attributes), inputs)


def _on_cpu(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return fallback.run(signature, inputs, len(signature.outputs), "a list or optional that lives on the CPU")


def _pipeline(signature: Signature, inputs: list[Any]) -> list[Entry]:
    """What an optional of `tf.data` holds: asking for a batch is where a step ends."""
    if stepper.due:
        stepper.cut()
    return fallback.execute(signature, inputs, len(signature.outputs))


def _bad(message: str) -> capi.StatusError:
    return capi.StatusError(capi.INVALID_ARGUMENT, message)


def _dims(entry: Tensor) -> tuple[int, ...] | None:
    """The element dimensions that a shape tensor says: None if it is a scalar -1."""
    shape = entry.static()
    return shape if isinstance(shape, tuple) else None


def _merged(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if a is None or b is None:
        return a if b is None else b
    if len(a) != len(b) or any(-1 not in (x, y) and x != y for x, y in zip(a, b, strict=True)):
        raise _bad(f"Incompatible shapes: {list(a)} and {list(b)}")
    return tuple([y if x == -1 else x for x, y in zip(a, b, strict=True)])


def _list_of(entry: Any) -> Bundle | None:
    return entry if entry.__class__ is Bundle and entry.kind == "list" else None


def _zeros(dims: tuple[int, ...] | None, dtype: int) -> Entry:
    if dims is None or -1 in dims:
        raise _bad("Trying to read an uninitialized tensor but element_shape is not fully defined")
    shape, zero = of_host(np.array(dims, np.int32).reshape(-1), _INT32), of_host(np.zeros((), capi.NUMPY_DTYPES[dtype]), dtype)
    made: Entry = _apply("Fill", [shape, zero], T=capi.AttrValue(type=dtype), index_type=capi.AttrValue(type=_INT32))[0]
    return made


def _known_dims(bundle: Bundle, given: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """What is known of the dimensions of a list's elements, from every side."""
    dims = _merged(bundle.element_dims, given)
    for entry in bundle.entries:
        if entry is not None and entry.__class__ is Tensor:
            dims = _merged(dims, entry.dims)
    return dims


def _filled(bundle: Bundle, given: tuple[int, ...] | None) -> list[Entry]:
    """The elements, with zeros for those that were never set."""
    if all(e is not None for e in bundle.entries):
        return list(bundle.entries)
    dims = _known_dims(bundle, given)
    return [_zeros(dims, bundle.element_dtype) if e is None else e for e in bundle.entries]


def _with(bundle: Bundle, entries: Sequence[Any]) -> Bundle:
    return Bundle("list", entries, bundle.element_dtype, bundle.element_dims)


# ------------------------------------------------------------------ making


def _element_dtype(signature: Signature) -> int:
    return int(signature.protos["element_dtype"].type)


@special("EmptyTensorList")
def _empty(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return [Bundle("list", (), _element_dtype(signature), _dims(inputs[0]))]


@special("TensorListReserve")
def _reserve(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return [Bundle("list", (None,) * inputs[1].static(), _element_dtype(signature), _dims(inputs[0]))]


@special("TensorListFromTensor")
def _from_tensor(signature: Signature, inputs: list[Any]) -> list[Entry]:
    tensor, shape = inputs
    if tensor.__class__ is not Tensor:
        return _on_cpu(signature, inputs)
    if not tensor.dims:
        raise _bad("Tensor must be at least a vector, but saw shape: []")
    return [Bundle("list", _unstack(tensor), tensor.dtype, _merged(_dims(shape), tensor.dims[1:]))]


def _unstack(tensor: Tensor) -> list[Any]:
    if not tensor.dims[0]:
        return []
    number, dtype, axis = capi.AttrValue(i=tensor.dims[0]), capi.AttrValue(type=tensor.dtype), capi.AttrValue(i=0)
    return _apply("Unpack", [tensor], num=number, T=dtype, axis=axis)


@special("TensorListScatterV2", "TensorListScatter")
def _scatter(signature: Signature, inputs: list[Any]) -> list[Entry]:
    tensor, indices, shape = inputs[:3]
    if tensor.__class__ is not Tensor or indices.__class__ is not Tensor:
        return _on_cpu(signature, inputs)
    wanted = inputs[3].static() if len(inputs) > 3 else -1
    places = indices.static()
    size = max([wanted, *[p + 1 for p in places]])
    entries: list[Any] = [None] * size
    for place, entry in zip(places, _unstack(tensor), strict=True):
        if not 0 <= place < size:
            raise _bad(f"Indices in TensorListScatter must all be non-negative, not {place}")
        entries[place] = entry
    return [Bundle("list", entries, tensor.dtype, _dims(shape))]


@special("TensorListScatterIntoExistingList")
def _scatter_into(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    tensor, indices = inputs[1:]
    if bundle is None or tensor.__class__ is not Tensor or indices.__class__ is not Tensor:
        return _on_cpu(signature, inputs)
    entries = list(bundle.entries)
    for place, entry in zip(indices.static(), _unstack(tensor), strict=True):
        if place < 0:
            raise _bad(f"Indices in TensorListScatter must all be non-negative, not {place}")
        entries += [None] * (place + 1 - len(entries))
        entries[place] = entry
    return [_with(bundle, entries)]


@special("TensorListSplit")
def _split(signature: Signature, inputs: list[Any]) -> list[Entry]:
    tensor, shape, lengths = inputs
    if tensor.__class__ is not Tensor:
        return _on_cpu(signature, inputs)
    sizes = [int(n) for n in lengths.numpy()]
    if sum(sizes) != tensor.dims[0]:
        raise _bad(f"Expected lengths to sum to {tensor.dims[0]} but they sum to {sum(sizes)}")
    dtype = capi.AttrValue(type=tensor.dtype)
    widths = of_host(np.array(sizes, np.int64), capi.TF_DTYPES[np.dtype(np.int64)])
    axis = of_host(np.array(0, np.int32), _INT32)
    number, width = capi.AttrValue(i=len(sizes)), capi.AttrValue(type=widths.dtype)
    parts = _apply("SplitV", [tensor, widths, axis], T=dtype, num_split=number, Tlen=width) if sizes else []
    return [Bundle("list", parts, tensor.dtype, _dims(shape))]


# ------------------------------------------------------------------ reading and writing


def _place(bundle: Bundle, index: Any) -> int:
    place = int(index.static())
    if not 0 <= place < len(bundle.entries):
        raise _bad(f"Trying to access element {place} in a list with {len(bundle.entries)} elements.")
    return place


@special("TensorListGetItem")
def _get(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None:
        return _on_cpu(signature, inputs)
    entry = bundle.entries[_place(bundle, inputs[1])]
    if entry is not None:
        return [entry]
    if bundle.element_dtype == capi.VARIANT:
        raise _bad("Trying to read an uninitialized element of a list of lists")
    return [_zeros(_known_dims(bundle, _dims(inputs[2])), bundle.element_dtype)]


@special("TensorListSetItem")
def _set(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    item = inputs[2]
    if bundle is None or item.__class__ is Foreign:
        return _on_cpu(signature, inputs)
    entries = list(bundle.entries)
    index = int(inputs[1].static())
    if signature.values["resize_if_index_out_of_bounds"] and index >= len(entries):
        entries += [None] * (index + 1 - len(entries))
        bundle = _with(bundle, entries)
    entries[_place(bundle, inputs[1])] = item
    if item.__class__ is Tensor:
        _merged(bundle.element_dims, item.dims)
    return [_with(bundle, entries)]


@special("TensorListPushBack")
def _push(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None or inputs[1].__class__ is Foreign:
        return _on_cpu(signature, inputs)
    return [_with(bundle, (*bundle.entries, inputs[1]))]


@special("TensorListPopBack")
def _pop(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None:
        return _on_cpu(signature, inputs)
    if not bundle.entries:
        raise _bad("Trying to pop from an empty list.")
    last = bundle.entries[-1]
    if last is None:
        last = _zeros(_known_dims(bundle, _dims(inputs[1])), bundle.element_dtype)
    return [_with(bundle, bundle.entries[:-1]), last]


@special("TensorListLength")
def _length(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    return _on_cpu(signature, inputs) if bundle is None else [of_host(np.array(len(bundle.entries), np.int32), _INT32)]


@special("TensorListElementShape")
def _element_shape(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None:
        return _on_cpu(signature, inputs)
    known, dtype = bundle.element_dims, signature.outputs[0]
    array = np.array(-1 if known is None else known, capi.NUMPY_DTYPES[dtype])
    return [of_host(array, dtype)]


@special("TensorListResize")
def _resize(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None:
        return _on_cpu(signature, inputs)
    size = int(inputs[1].static())
    if size < 0:
        raise _bad("TensorListResize expects size to be non-negative.")
    return [_with(bundle, (*bundle.entries[:size], *[None] * (size - len(bundle.entries))))]


# ------------------------------------------------------------------ joining


@special("TensorListStack")
def _stack(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None or signature.outputs[0] not in capi.NUMPY_DTYPES:
        return _on_cpu(signature, inputs)
    wanted, given = signature.values["num_elements"], _dims(inputs[1])
    if wanted not in (-1, len(bundle.entries)):
        raise _bad(f"Operation expected a list with {wanted} elements but got a list with {len(bundle.entries)} elements.")
    return [_stacked(_filled(bundle, given), _known_dims(bundle, given), bundle.element_dtype)]


def _stacked(entries: list[Entry], dims: tuple[int, ...] | None, dtype: int) -> Entry:
    if not entries:
        if dims is None or -1 in dims:
            raise _bad("Tried to stack elements of an empty list with non-fully-defined element_shape")
        return of_host(np.zeros((0, *dims), capi.NUMPY_DTYPES[dtype]), dtype)
    return _apply("Pack", list(entries), N=capi.AttrValue(i=len(entries)), T=capi.AttrValue(type=dtype), axis=capi.AttrValue(i=0))[0]


@special("TensorListGather")
def _gather(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None or signature.outputs[0] not in capi.NUMPY_DTYPES:
        return _on_cpu(signature, inputs)
    given = _dims(inputs[2])
    entries = _filled(bundle, given)
    places = inputs[1].static()
    if any(not 0 <= p < len(entries) for p in places):
        raise _bad(f"Trying to gather elements {list(places)} from a list with {len(entries)} elements.")
    return [_stacked([entries[p] for p in places], _known_dims(bundle, given), bundle.element_dtype)]


@special("TensorListConcatV2", "TensorListConcat")
def _concat(signature: Signature, inputs: list[Any]) -> list[Entry]:
    bundle = _list_of(inputs[0])
    if bundle is None or signature.outputs[0] not in capi.NUMPY_DTYPES or any(e is None for e in bundle.entries) or not bundle.entries:
        return _on_cpu(signature, inputs)
    entries: list[Any] = list(bundle.entries)
    axis = of_host(np.array(0, np.int32), _INT32)
    number, dtype, kind = capi.AttrValue(i=len(entries)), capi.AttrValue(type=bundle.element_dtype), capi.AttrValue(type=_INT32)
    joined = _apply("ConcatV2", [*entries, axis], N=number, T=dtype, Tidx=kind) if len(entries) > 1 else entries
    lengths = np.array([e.dims[0] for e in entries], np.int64)
    return [joined[0], of_host(lengths, capi.TF_DTYPES[lengths.dtype])]


@special("TensorListConcatLists")
def _concat_lists(signature: Signature, inputs: list[Any]) -> list[Entry]:
    a, b = _list_of(inputs[0]), _list_of(inputs[1])
    if a is None or b is None:
        return _on_cpu(signature, inputs)
    return [_with(a, (*a.entries, *b.entries))]


def add_lists(a: Any, b: Any) -> Bundle:
    """Element by element sum of two lists, as gradients of loops ask for.

    Raises:
        StatusError: they do not have the same length.
    """
    if len(a.entries) != len(b.entries):
        raise _bad(f"Trying to add two lists of tensors of different lengths: {len(a.entries)} and {len(b.entries)}")
    entries: list[Any] = []
    for x, y in zip(a.entries, b.entries, strict=True):
        if x is None or y is None:
            entries.append(y if x is None else x)
        elif x.__class__ is Bundle:
            entries.append(add_lists(x, y))
        else:
            entries += _apply("AddV2", [x, y], T=capi.AttrValue(type=x.dtype))
    return Bundle("list", entries, a.element_dtype, _merged(a.element_dims, b.element_dims))


def zeros_like(bundle: Bundle) -> Bundle:
    """The same list with zeros for its elements."""
    entries = [
        zeros_like(e) if e.__class__ is Bundle else e if e is None else _apply("ZerosLike", [e], T=capi.AttrValue(type=e.dtype))[0]
        for e in bundle.entries
    ]
    return Bundle(bundle.kind, entries, bundle.element_dtype, bundle.element_dims)


# ------------------------------------------------------------------ optionals


@special("OptionalNone")
def _none(signature: Signature, inputs: list[Any]) -> list[Entry]:
    return [Bundle("none", ())]


@special("OptionalFromValue")
def _from_value(signature: Signature, inputs: list[Any]) -> list[Entry]:
    if any(e.__class__ not in (Tensor, Bundle) for e in inputs):
        return _pipeline(signature, inputs)
    return [Bundle("optional", inputs)]


@special("OptionalHasValue")
def _has_value(signature: Signature, inputs: list[Any]) -> list[Entry]:
    if inputs[0].__class__ is not Bundle:
        return _pipeline(signature, inputs)
    return [of_host(np.array(inputs[0].kind == "optional"), _BOOL)]


@special("OptionalGetValue")
def _get_value(signature: Signature, inputs: list[Any]) -> list[Entry]:
    if inputs[0].__class__ is not Bundle:
        return _pipeline(signature, inputs)
    if inputs[0].kind != "optional":
        raise _bad("The given optional does not have a value.")
    return list(inputs[0].entries)
