"""Rules of dims: each agrees with the lowering that it saves tracing, on operands that fit and on those that do not."""

import itertools

import numpy as np
import pytest

from lazy_core import ops
from lazy_core.errors import LazyError, ShapeError
from lazy_core.ir import attrs
from lazy_core.ops.registry import REGISTRY, Op
from lazy_core.shape import Shape
from lazy_core.testing import samples

RULED = sorted(name for name, found in REGISTRY.items() if found.rule is not None)


def changed_dims(dims):
    """Dims one change away from these."""
    yield dims
    if dims:
        yield dims[1:]
        yield dims[::-1]
    yield (*dims, 2)
    yield (3, *dims)
    for k, size in itertools.product(range(len(dims)), (0, 1, 5)):
        yield (*dims[:k], size, *dims[k + 1 :])


def changed_attributes(attributes):
    """Attributes one change away from these: a number more or less, or one entry fewer."""
    yield attributes
    for name, value in attributes.items():
        if isinstance(value, tuple) and value and all(type(n) is int for n in value):
            yield {**attributes, name: value[1:]}
            for k, by in itertools.product(range(len(value)), (-1, 1)):
                yield {**attributes, name: (*value[:k], value[k] + by, *value[k + 1 :])}
        elif type(value) is bool:
            yield {**attributes, name: not value}
        elif type(value) is int:
            yield from ({**attributes, name: value + by} for by in (-1, 1))


def cases(name):
    """Operand shapes and attributes on samples and beside them."""
    found = REGISTRY[name]
    dtype = next(d for d in found.dtypes)
    for sample in samples(name, dtype):
        shapes = [Shape.of(a.shape, a.dtype) for a in sample.args]
        for attributes in changed_attributes({**found.defaults, **sample.attrs}):
            yield shapes, attributes
        for k, shape in enumerate(shapes):
            for dims in changed_dims(shape.dims):
                yield [*shapes[:k], Shape.of(dims, shape.dtype), *shapes[k + 1 :]], {**found.defaults, **sample.attrs}


def traced(found, shapes, attributes):
    """What the lowering gives, or None where it refuses."""
    try:
        return found._infer(shapes, attributes)
    except LazyError:
        return None


@pytest.mark.parametrize("name", RULED)
def test_rules_of_dims_agree_with_the_lowerings(name):
    found, sorts, refused, answers = REGISTRY[name], {}, set(), 0
    for shapes, attributes in cases(name):
        given = attrs(**attributes)
        sort = found._sort(found.rule, tuple(shapes), given)
        expected = traced(found, tuple(shapes), given)
        try:
            dims = found.rule.dims(shapes, attributes)
        except ShapeError:
            dims = None
        if expected is None:
            if dims is not None:
                refused.add(sort)
            continue
        (result,), several = expected
        assert not several
        assert dims is None or dims == result.dims
        assert sorts.setdefault(sort, result.dtype) == result.dtype
        answers += dims is not None
    assert answers
    assert not refused & set(sorts)  # a rule is only asked for a sort of operands that the lowering has taken


def test_a_new_shape_is_not_traced(monkeypatch):
    x = Shape.of((3, 4), np.float32)
    assert ops.tanh.infer((x,), attrs())[0] == (x,)
    monkeypatch.setattr(Op, "_infer", lambda op, *rest: pytest.fail(f"the lowering of {op.name} was traced"))
    y = Shape.of((123, 457), np.float32)
    assert ops.tanh.infer((y,), attrs()) == ((y,), False)


def test_errors_are_those_of_the_lowering():
    fits, odd = Shape.of((2, 3), np.float32), Shape.of((4, 3), np.float32)
    ops.add.infer((fits, fits), attrs())
    with pytest.raises(ShapeError, match="add"):
        ops.add.infer((fits, odd), attrs())
    ops.sum.infer((fits,), attrs(axes=(1,), keepdims=False))
    with pytest.raises(ShapeError, match="sum"):
        ops.sum.infer((Shape.of((2,), np.float32),), attrs(axes=(1,), keepdims=False))
