"""Compiled programs round where NumPy does: arithmetic keeps every bit by default, through whole expressions, and `fast` lifts that."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazy_core
import lazy_numpy
from lazy_core import cache, ir, lowering, ops, values
from lazy_numpy.proxy import module

LAZY = module()
DTYPES = [np.float64, np.float32]


def operands(dtype, seed, size=257):
    rng = np.random.default_rng(seed)
    return [(rng.choice([-1, 1], size) * rng.uniform(0.5, 2.0, size)).astype(dtype) for _ in range(3)]


def same_bits(got, want):
    got = np.asarray(got)
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes(), f"{(got != want).sum()} of {want.size} elements differ"


@st.composite
def expressions(draw, depth=4):
    """A nested expression of arrays a, b, c and constants; no product or quotient is an operand of a sum (see the last test)."""
    kind = draw(st.sampled_from("leaf sum product quotient root constant".split())) if depth else "leaf"
    if kind == "leaf":
        return draw(st.sampled_from("abc"))
    if kind == "root":
        return f"np.sqrt(np.abs({draw(expressions(depth - 1))}))"
    left = draw(expressions(depth - 1))
    if kind == "sum":
        operator, plain = draw(st.sampled_from("+-")), draw(st.sampled_from("abc"))
        return f"(np.maximum({left}, -4.0) {operator} {plain})"
    if kind == "constant":
        number = draw(st.sampled_from([3.0, 0.1, 7.0, 1e-3, 10.0, -1.5]))
        return f"({number} / {left})" if draw(st.booleans()) else f"({left} {draw(st.sampled_from('*/'))} {number})"
    return f"({left} {'*' if kind == 'product' else '/'} {draw(expressions(depth - 1))})"


def evaluate(expression, np_, arrays):
    with np.errstate(all="ignore"):
        return eval(expression, {"np": np_, **dict(zip("abc", arrays, strict=True))})


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=60, deadline=None)
@given(expression=expressions(), seed=st.integers(0, 1000))
def test_any_expression_of_arithmetic_keeps_every_bit(dtype, expression, seed):
    arrays = operands(dtype, seed)
    want = evaluate(expression, np, arrays)
    tiny = np.finfo(dtype).tiny
    if not np.isfinite(want).all() or (np.abs(want[want != 0]) < tiny).any():
        return  # subnormal numbers are flushed, as documented
    with lazy_core.options(tier="compiled"):
        same_bits(evaluate(expression, LAZY, [LAZY.array(a) for a in arrays]), want)


IDENTITIES = [
    "a / 3.0",
    "a / b / 3.0",
    "(a + 1e9) - 1e9",
    "a + 1e9 - 1e9 + b",
    "1 / np.sqrt(np.abs(a))",
    "a * 0.1 * 0.3",
    "(a / b) * b",
    "a * (b / a)",
    "np.sqrt(a * a)",
    "(a * 3.0) / 3.0",
    "a / np.exp(0.0 * b)",
    "a / np.abs(b).sum()",
    "(a + b) - b",
    "a * 0.0 + -0.0",
    "-(a - a)",
    "np.exp(a - a) / 3.0",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", IDENTITIES)
def test_what_is_equal_on_paper_only_is_computed_as_it_stands(dtype, expression):
    arrays = operands(dtype, 5)
    if "sum" in expression:  # of powers of two, which is exact in any order
        arrays[1] = np.exp2(np.arange(257) % 3).astype(dtype)
    with lazy_core.options(tier="compiled"):
        same_bits(evaluate(expression, LAZY, [LAZY.array(a) for a in arrays]), evaluate(expression, np, arrays))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fast_lifts_that_and_the_default_comes_back(dtype):
    a = operands(dtype, 5)[0]
    with lazy_core.options(tier="compiled"):
        for fast in (False, True, False, True):
            with lazy_core.options(fast=fast):
                got = np.asarray(LAZY.array(a) / 3.0)
                np.testing.assert_allclose(got, a / 3.0, rtol=2 * np.finfo(dtype).eps)
                assert (got.tobytes() == (a / 3.0).tobytes()) is not fast


@pytest.mark.parametrize("wrong", ["maybe", 2, None])
def test_fast_is_true_or_false(wrong):
    with pytest.raises(ValueError, match="True or False"), lazy_core.options(fast=wrong):
        pass


def test_exactness_is_part_of_a_programs_identity():
    """In memory, by its text as on disk."""
    a = operands(np.float64, 5)[0]
    texts = []
    for fast in (False, True):
        cache.cache.clear()
        with lazy_core.options(tier="compiled", fast=fast):
            np.asarray(LAZY.array(a) / 7.0)
        texts.append(next(iter(cache.cache.programs._entries)))
    assert texts[0] != texts[1]
    assert texts[0].startswith(texts[1])


def test_what_is_remembered_of_a_graph_is_remembered_for_one_rounding():
    """Its programs, and on disk the tier that it was found to run faster on."""
    with lazy_core.options(tier="compiled"):
        x = LAZY.arange(300.0) / 3.0
        graphs = []
        for fast in (False, True):
            with lazy_core.options(fast=fast):
                graphs.append(lowering.linearise([lazy_numpy.to_lazy(x).expr]))
    assert [graph.exact for graph in graphs] == [True, False]
    assert graphs[0].key != graphs[1].key
    assert lowering.text_of(graphs[0]) != lowering.text_of(graphs[1])


def exact_programs():
    """For each program that ran since the cache was cleared whether it was computed as it stands."""
    return [plan.graph.exact for plan in cache.cache.plans.entries() if plan.graph is not None]


def third_by_core(x):
    return ops.div(x, ir.const(3.0, np.float64))


NUMBERS = np.arange(1000) * 0.7
IOTA = ir.attrs(dims=(300,), axis=0, dtype=np.dtype(np.float64))
EXACT = {
    "NumPy's array": lambda: LAZY.array(NUMBERS) / 3.0,
    "NumPy's function of no array": lambda: LAZY.arange(300.0) / 3.0,
    "core on NumPy's array": lambda: third_by_core(lazy_numpy.to_lazy(LAZY.array(NUMBERS))),
    "core on what NumPy has pending": lambda: third_by_core(lazy_numpy.to_lazy(LAZY.array(NUMBERS) + 1.0)),
    "NumPy on core's array": lambda: lazy_numpy.from_lazy(values.from_host(NUMBERS)) / 3.0,
    "NumPy on what core has pending": lambda: lazy_numpy.from_lazy(third_by_core(values.from_host(NUMBERS))) + 1.0,
}
NOT_EXACT = {
    "core's array": lambda: third_by_core(values.from_host(NUMBERS)),
    "core's function of no array": lambda: third_by_core(values.record(ops.iota, (), IOTA)),
}


@pytest.mark.parametrize("what", [*EXACT, *NOT_EXACT])
def test_exactly_what_reads_or_gives_numpys_arrays_is_computed_as_it_stands(what):
    """Importing lazy_numpy changes no program of other frontends."""
    lazy_core.barrier()
    cache.cache.clear()
    with lazy_core.options(tier="compiled"):
        result = {**EXACT, **NOT_EXACT}[what]()
        lazy_core.barrier()
    assert result is not None
    assert set(exact_programs()) == {what in EXACT}


def test_one_expression_is_two_programs_for_those_who_round_and_those_who_do_not():
    """The same operations on the same leaf, wanted by core first and by NumPy then, and the other way round."""
    x = values.from_host(NUMBERS)
    lazy_core.barrier()
    for order in ((False, True), (True, False)):
        cache.cache.clear()
        with lazy_core.options(tier="compiled"):
            for exact in order:
                if exact:
                    same_bits(lazy_numpy.from_lazy(x) / 3.0, NUMBERS / 3.0)
                else:
                    assert (values.to_host(third_by_core(x)) != NUMBERS / 3.0).any()
        assert exact_programs() == list(order)


def test_numpys_and_cores_values_are_one_trace_and_one_program():
    lazy_core.barrier()
    lazy_core.reset_report()
    with lazy_core.options(tier="compiled"):
        a, x = LAZY.array(NUMBERS), values.from_host(NUMBERS)
        both = [a / 3.0, third_by_core(x), lazy_numpy.from_lazy(x) + a]
        lazy_core.barrier()
        same_bits(both[0], NUMBERS / 3.0)
        same_bits(both[2], NUMBERS + NUMBERS)
        same_bits(values.to_host(both[1]), NUMBERS / 3.0)
    assert lazy_core.report().counters["barriers"] == 1


CONTRACTED = """
import numpy as np
import lazy_core
from lazy_numpy.proxy import module
rng = np.random.default_rng(0)
a, b, c = rng.standard_normal((3, 10_000))
np_ = module()
with lazy_core.options(tier="compiled"):
    x, y, z = map(np_.array, (a, b, c))
    print((np.asarray(x * y + z) == a * b + c).mean(), (np.asarray(x - y * 0.1) == a - b * 0.1).mean())
"""


def test_a_product_in_a_sum_is_contracted_unless_xla_is_told_not_to_have_the_instruction():
    """As documented: XLA has no option by program for it."""
    shares = {}
    for flags in ("", "--xla_cpu_max_isa=AVX"):
        environment = {**os.environ, "XLA_FLAGS": flags, "LAZY_CACHE_DIR": "off"}
        done = subprocess.run([sys.executable, "-c", CONTRACTED], env=environment, capture_output=True, text=True, check=True)
        shares[flags] = [float(s) for s in done.stdout.split()]
    assert shares["--xla_cpu_max_isa=AVX"] == [1.0, 1.0]
    assert min(shares[""]) > 0.5
