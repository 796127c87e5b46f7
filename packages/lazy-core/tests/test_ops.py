"""Every operation: registered once, documented, sampled, inferred as it runs, and equal to NumPy where NumPy has it."""

import functools
import re
import runpy
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from lazy_core import ops
from lazy_core.errors import DtypeError, ShapeError
from lazy_core.ir import attrs
from lazy_core.ops.registry import REGISTRY, Op, op
from lazy_core.shape import Shape
from lazy_core.testing import Tolerance, assert_close, samples, tolerance

REFERENCES = runpy.run_path(str(Path(__file__).with_name("op_references.py")))["REFERENCES"]
DTYPES = ("float32", "float64", "int32", "uint8", "bool", "complex64", "bfloat16")


def supported(found, name):
    return [d for d in found.dtypes if d.name == name]


# NumPy's result has another dtype by its own promotion; the values are the same.
NARROWER = {"abs", "pow", "conj", "round"}
CELLS = [(name, dtype) for name, found in sorted(REGISTRY.items()) for dtype in DTYPES if supported(found, dtype)]


@functools.cache
def family_results(family, dtype_name):
    """Outputs of all samples of a family for one dtype, in one compiled program: compiling is what this file spends its time on."""
    todo = [
        (name, sample)
        for name, found in sorted(REGISTRY.items())
        if found.family == family
        for dtype in supported(found, dtype_name)
        for sample in samples(name, dtype)
    ]

    def run(arguments):
        return [REGISTRY[name].fn(*args, **sample.attrs) for (name, sample), args in zip(todo, arguments, strict=True)]

    with jax.enable_x64(True):
        results = jax.jit(run)([sample.args for _, sample in todo])
    grouped = {}
    for (name, sample), result in zip(todo, results, strict=True):
        several = isinstance(result, (tuple, list))
        grouped.setdefault(name, []).append((sample, [np.asarray(r) for r in (result if several else (result,))], several))
    return grouped


def results(name, dtype_name):
    return family_results(REGISTRY[name].family, dtype_name)[name]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_operation_is_documented_and_sampled(name):
    """Docstring with the form of operands, samples for every dtype that it claims, no default that two callers could spell differently."""
    found = REGISTRY[name]
    assert "->" in found.doc, "the docstring must give operand shapes: dtype[*dims] -> dtype[*dims]"
    assert "XLA" in found.doc, "the docstring must name the XLA operation"
    as_another = re.search(r"Attributes:[^.]*\bas\b", found.doc, re.DOTALL)
    for attribute in () if as_another else found.attr_names:
        assert re.search(rf"\b{attribute}\b", found.doc), f"attribute {attribute} is not documented"
    assert getattr(ops, name) is found
    for dtype in found.dtypes:
        assert samples(name, dtype), f"no samples of {dtype}"


@pytest.mark.parametrize(("name", "dtype"), CELLS)
def test_inferred_shapes_are_those_of_the_result(name, dtype):
    """`infer` says before what running gives."""
    for sample, outputs, several in results(name, dtype):
        inferred = REGISTRY[name].infer(tuple(Shape.of(a.shape, a.dtype) for a in sample.args), attrs(**sample.attrs))
        assert inferred == (tuple(Shape.of(o.shape, o.dtype) for o in outputs), several)


@pytest.mark.parametrize(("name", "dtype"), [c for c in CELLS if c[0] in REFERENCES])
def test_operation_equals_numpy(name, dtype):
    """The operation against a NumPy function, within the declared tolerance; integers and bools exactly."""
    half = dtype == "bfloat16" and name != "bitcast"
    for sample, outputs, _ in results(name, dtype):
        args = [a.astype(np.float32) if half and a.dtype.name == dtype else a for a in sample.args]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of nothing, imaginary parts lost
            expected = REFERENCES[name](*args, **sample.attrs)
        for output, wanted in zip(outputs, expected if isinstance(expected, (tuple, list)) else (expected,), strict=True):
            wanted = np.asarray(wanted)
            if half and wanted.dtype == np.float32 and output.dtype.name == dtype:
                with np.errstate(all="ignore"):
                    wanted = wanted.astype(output.dtype)
            allowed = tolerance(name)
            if half:
                allowed = Tolerance(max(allowed.ulps, 2), max(allowed.scaled, 1), "rounded to 8 bits more than once")
            wanted = wanted.astype(output.dtype) if name in NARROWER else wanted
            assert_close(output, wanted, allowed, f"{name}{[a.shape for a in args]} {sample.attrs}")


def test_every_family_is_imported():
    """A family file that nobody imports would register nothing."""
    assert {found.family for found in REGISTRY.values()} == set(ops.FAMILIES)


def test_duplicate_name_is_an_error():
    """Two operations cannot share a name."""
    with pytest.raises(ValueError, match="two operations are named 'add'"):
        op(samples=lambda d, r: iter(()))(REGISTRY["add"].fn)


def test_operation_without_docstring_is_an_error():
    """What is undocumented cannot be registered."""
    with pytest.raises(ValueError, match="no docstring"):
        op(samples=lambda d, r: iter(()), name="test_nameless")(lambda x: x)


def test_unknown_operation_is_an_attribute_error():
    """A misspelt operation names the registry."""
    with pytest.raises(AttributeError, match="no operation 'ad'"):
        _ = ops.ad


def f32(*dims):
    return Shape.of(dims, np.float32)


def s64(*dims):
    return Shape.of(dims, np.int64)


def test_different_dtypes_are_named():
    """Core never promotes; the error names both dtypes."""
    with pytest.raises(DtypeError, match=r"add\(f32\[2\], s64\[2\]\): operands of dtypes float32 and int64"):
        ops.add.infer((f32(2), s64(2)), attrs())


def test_dims_that_cannot_be_broadcast_are_named():
    """The error names the shapes and the rule."""
    with pytest.raises(ShapeError, match=r"mul\(f32\[2\], f32\[3\]\): dims cannot be broadcast"):
        ops.mul.infer((f32(2), f32(3)), attrs())


@pytest.mark.parametrize("name", [n for n, o in sorted(REGISTRY.items()) if o.family == "binary"])
def test_elementwise_operations_check_operands(name):
    """Every operation of two operands refuses different dtypes and dims that do not broadcast."""
    dtype = REGISTRY[name].dtypes[0]
    other = np.dtype(np.float64 if dtype != np.float64 else np.float32)
    with pytest.raises(DtypeError):
        REGISTRY[name].infer((Shape.of((2,), dtype), Shape.of((2,), other)), attrs())
    with pytest.raises(ShapeError):
        REGISTRY[name].infer((Shape.of((2,), dtype), Shape.of((3,), dtype)), attrs())


def test_error_of_an_unsupported_dtype_says_what_was_expected():
    """An error from XLA's side is retold with the operation, its operands and its docstring."""
    with pytest.raises(DtypeError, match=r"sin\(s64\[2\]\) does not fit.*expected: The sine"):
        ops.sin.infer((s64(2),), attrs())


def test_wrong_attributes_are_named():
    """A missing or unknown attribute is a TypeError that lists the right ones."""
    with pytest.raises(TypeError, match=r"sum takes the attributes \(axes, keepdims\), not \(axis\)"):
        ops.sum.infer((f32(2),), attrs(axis=0))


def test_failed_inference_is_not_remembered():
    """After an error the same operation still works."""
    with pytest.raises(ShapeError):
        ops.matmul.infer((f32(2, 3), f32(4, 5)), attrs())
    assert ops.matmul.infer((f32(2, 3), f32(3, 5)), attrs())[0] == (f32(2, 5),)


def test_inference_runs_once_a_signature():
    """The lowering is traced once for each combination of shapes and attributes."""
    calls = []
    found = Op.unregistered("test_counting", lambda x, *, k: (calls.append(k), x)[1])
    for k in (1, 1, 2, 1):
        found.infer((f32(2),), attrs(k=k))
    assert calls == [1, 2]


def test_bare_python_number_is_refused():
    """Core does not guess the dtype of a number."""
    import lazy_core

    x = lazy_core.values.from_host(np.ones(2, np.float32))
    with pytest.raises(DtypeError, match="core does no promotion"):
        ops.add(x, 1.0)
    assert ops.add(x, np.float32(1)).shape == f32(2)
