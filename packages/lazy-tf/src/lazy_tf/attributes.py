"""Attributes of TensorFlow operations: from serialised protos to canonical Python data, cached.

Owns: what is known of an operation from its OpDef (`OpInfo`) and of one use of it from its attributes (`Signature`).  TensorFlow
serialises an attribute map in random order, so a blob is first looked up as it is, then by its deterministic form: equal attributes give
the same Signature object. May import `capi` only.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from . import capi

# They take a variable, have state by their OpDef, and leave it as it is.
_READERS = frozenset(["ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"])
_LIST_FIELDS = ("i", "f", "b", "s", "type")


def plain(value: Any) -> Any:
    """One `AttrValue` as static data.

    Dtypes become numpy.dtype (or the enum's number if NumPy has none), shapes and lists tuples, bytes str.
    """
    kind = value.WhichOneof("value")
    if kind == "type":
        return capi.NUMPY_DTYPES.get(value.type, value.type)
    if kind == "s":
        return _text(value.s)
    if kind in ("i", "f", "b"):
        return getattr(value, kind)
    if kind == "shape":
        return _shape(value.shape)
    if kind == "func":
        return value.func.name
    if kind == "tensor":
        return tf.make_ndarray(value.tensor).tolist()
    if kind == "list":
        for field in _LIST_FIELDS:
            items = getattr(value.list, field)
            if len(items):
                if field == "type":
                    return tuple([capi.NUMPY_DTYPES.get(t, t) for t in items])
                return tuple([_text(i) for i in items]) if field == "s" else tuple(items)
        if len(value.list.shape):
            return tuple([_shape(s) for s in value.list.shape])
        return ()
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple([d.size for d in shape.dim])


class Signature:
    """One use of an operation: its attributes, output dtypes and where each named input lies.

    Attributes:
        info: the operation.
        protos: `AttrValue` by name, as TensorFlow gave them (for running the operation on the CPU).
        values: static Python data by name, with the OpDef's defaults.
        outputs: the output dtypes as TensorFlow's enum.
        spans: for each input of the OpDef its first position and how many there are.
        key: the deterministic serialisation.
        cache: for whoever dispatches: what follows from the signature alone.
    """

    __slots__ = ("cache", "info", "key", "outputs", "protos", "spans", "values")

    def __init__(self, info: OpInfo, protos: dict[str, Any], key: Any) -> None:
        self.info = info
        self.protos = {k: v for k, v in protos.items() if not k.startswith("_")}
        self.key = key
        self.values = {k: plain(v) for k, v in self.protos.items()}
        raw = dict(self.protos)
        self.outputs: tuple[int, ...] = ()
        self.spans: dict[str, tuple[int, int]] = {}
        self.cache: dict[Any, Any] = {}
        if info.op_def is None:
            return
        for attr in info.op_def.attr:
            if attr.name not in raw and attr.HasField("default_value"):
                raw[attr.name] = attr.default_value
                self.values[attr.name] = plain(attr.default_value)
        outputs: list[int] = []
        for out in info.op_def.output_arg:
            outputs += _arg_dtypes(out, raw)
        self.outputs = tuple(outputs)
        position = 0
        for arg in info.op_def.input_arg:
            count = _arg_count(arg, raw)
            self.spans[arg.name] = (position, count)
            position += count


def _arg_count(arg: Any, raw: dict[str, Any]) -> int:
    if arg.type_list_attr:
        return len(raw[arg.type_list_attr].list.type)
    return int(raw[arg.number_attr].i) if arg.number_attr else 1


def _arg_dtypes(arg: Any, raw: dict[str, Any]) -> list[int]:
    if arg.type_list_attr:
        return list(raw[arg.type_list_attr].list.type)
    dtype = raw[arg.type_attr].type if arg.type_attr else arg.type
    return [dtype] * (int(raw[arg.number_attr].i) if arg.number_attr else 1)


class OpInfo:
    """What the OpDef alone says about an operation.

    Attributes:
        name: the raw operation's name, or a function's.
        op_def: the OpDef, or None for a function.
        arity: the number of inputs, or -1 where it varies.
        follows: whether every attribute follows from the inputs' dtypes and number, so that attributes need not be read at all.
        stateful: whether the operation has state or side effects.
        changes: whether it may change variables that it is given.
    """

    __slots__ = ("_by_dtypes", "_canonical", "_raw", "arity", "changes", "follows", "handler", "name", "op_def", "stateful")

    def __init__(self, name: str) -> None:
        self.name = name
        self.op_def = capi.op_def(name)
        self.stateful = self.op_def is None or self.op_def.is_stateful
        self.changes = self.stateful and name not in _READERS
        self.arity = -1
        self.follows = False
        self.handler: Any = None
        self._raw: dict[bytes, Signature] = {}
        self._canonical: dict[bytes, Signature] = {}
        self._by_dtypes: dict[tuple[int, ...], Signature] = {}
        if self.op_def is None:
            return
        args = self.op_def.input_arg
        if not any(a.number_attr or a.type_list_attr for a in args):
            self.arity = len(args)
        bound = {a.type_attr for a in args if a.type_attr} | {a.number_attr for a in args if a.number_attr}
        lists = sum(1 for a in args if a.number_attr)
        self.follows = (
            not any(a.type_list_attr for a in args)
            and lists <= 1
            and all(attr.name in bound for attr in self.op_def.attr if not attr.name.startswith("_"))
        )

    def by_blob(self, blob: bytes) -> Signature:
        """The signature of serialised attributes."""
        found = self._raw.get(blob)
        if found is None:
            listed = capi.NameAttrList.FromString(blob)
            if len(self._raw) > 4096:
                self._raw.clear()
            found = self._raw[blob] = self.by_protos(dict(listed.attr))
        return found

    def by_protos(self, protos: dict[str, Any]) -> Signature:
        """The signature of attributes given as protos."""
        kept = {k: v for k, v in protos.items() if not k.startswith("_")}
        listed = capi.NameAttrList(name=self.name)
        for name in sorted(kept):
            listed.attr[name].CopyFrom(kept[name])
        key = listed.SerializeToString(deterministic=True)
        found = self._canonical.get(key)
        if found is None:
            found = self._canonical[key] = Signature(self, kept, key)
        return found

    def by_dtypes(self, dtypes: tuple[int, ...]) -> Signature:
        """The signature that follows from the inputs (see `follows`)."""
        found = self._by_dtypes.get(dtypes)
        if found is None:
            protos: dict[str, Any] = {}
            args = self.op_def.input_arg
            position = 0
            for arg in args:
                count = len(dtypes) - len(args) + 1 if arg.number_attr else 1
                if arg.number_attr:
                    protos[arg.number_attr] = capi.AttrValue(i=count)
                if arg.type_attr and count:
                    protos.setdefault(arg.type_attr, capi.AttrValue(type=dtypes[position]))  # where they differ the first counts
                position += count
            found = self._by_dtypes[dtypes] = self.by_protos(protos)
        return found


@functools.lru_cache(None)
def op_info(name: str) -> OpInfo:
    """What is known of an operation by its OpDef; one object a name."""
    return OpInfo(name)


def attr_value(value: Any) -> Any:
    """An `AttrValue` from Python data: bool, int, float, str, numpy.dtype, tuple of ints as a shape."""
    made = capi.AttrValue()
    if isinstance(value, bool):
        made.b = value
    elif isinstance(value, int):
        made.i = value
    elif isinstance(value, float):
        made.f = value
    elif isinstance(value, str):
        made.s = value.encode()
    elif isinstance(value, np.dtype):
        made.type = capi.TF_DTYPES[value]
    else:
        made.shape.SetInParent()
        for size in value:
            made.shape.dim.add().size = size
    return made
