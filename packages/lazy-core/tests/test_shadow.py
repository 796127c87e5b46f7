"""Shadow runs: a wrong kernel is found and named with its line; rounding is not taken for one."""

import contextlib
import io
import warnings

import numpy as np
import pytest
from jax import numpy as jnp

import lazy_core
from lazy_core import cli, errors, ir, ops, random, shadow, terminal, values
from lazy_core.cache import cache
from lazy_core.native import registry as kernels
from lazy_core.ops import REGISTRY, registry


@pytest.fixture(autouse=True)
def fresh():
    """Every test compiles and counts for itself, and a warning that it does not expect is an error."""
    lazy_core.barrier()
    cache.clear()
    lazy_core.reset_report()
    shadow._known.clear()
    with lazy_core.options(tier="compiled", shadow="every"), warnings.catch_warnings():
        warnings.simplefilter("error", shadow.ShadowWarning)
        yield
    lazy_core.barrier()


@contextlib.contextmanager
def planted(name, compiled, native):
    """An operation of one or two operands that the two tiers compute by these functions."""

    def lowering(*xs):
        """What the test says: dtype[*dims]."""
        return compiled(*xs)

    registry.op(samples=registry.unary_samples(), name=name)(lowering)
    kernels.kernel(name)(native)
    try:
        yield REGISTRY[name]
    finally:
        del REGISTRY[name], kernels._TABLE[name]


def array(*dims, seed=0, dtype=np.float32, scale=1.0):
    return values.from_host((np.random.default_rng(seed).standard_normal(dims) * scale).astype(dtype))


def mul(x, number):
    return values.record(ops.mul, (x, ir.const(number, x.shape.dtype)))


def found():
    return [event for event in lazy_core.report().events if event.kind == "shadow"]


def counted():
    counters = lazy_core.report().counters
    return counters["shadow_runs"], counters["shadow_differences"]


def layers(x, w, count):
    """A well-conditioned program of three operations a layer."""
    for _ in range(count):
        x = ops.tanh(ops.add(mul(ops.matmul(x, w), 0.1), x))
    return x


def test_the_guilty_operation_and_its_line_are_named():
    """In the middle of a long program: not what stands before it, nor what its error reaches."""
    x, w = array(16, 16), array(16, 16, seed=1)
    with planted("wrong_sin", lambda x: jnp.sin(x) * (1 + 2e-4), np.sin) as wrong:
        y = layers(x, w, 40)
        y = wrong(y)  # the guilty line
        y = layers(y, w, 40)
        with pytest.warns(shadow.ShadowWarning, match=r"shadow run: wrong_sin\(f32\[16,16\]\) given equal operands: compiled"):
            lazy_core.barrier()
        del y
    report = lazy_core.report()
    assert "wrong_sin(f32[16,16]) given equal operands" in report.to_html()
    assert "wrong_sin(f32[16,16]) given equal operands" in str(report)
    shown = io.StringIO()
    terminal.show(report, shown)
    assert "what compiled programs compute wrongly" in shown.getvalue()
    (event,) = found()
    name, _, line = event.site.rpartition(":")
    with open(name) as file:
        assert "the guilty line" in file.readlines()[int(line) - 1]
    assert "256 of 256 elements are out of tolerance, the largest difference is 0.00" in event.cause
    assert "units in the last place" in event.cause
    assert counted() == (1, 1)


def test_the_first_of_two_is_named_first():
    """Both stand in the text."""
    with planted("wrong_sin", lambda x: jnp.sin(x) + 1, np.sin) as one, planted("wrong_cos", lambda x: jnp.cos(x) + 1, np.cos) as two:
        y = two(ops.exp(one(array(4))))
        with pytest.warns(shadow.ShadowWarning, match=r"wrong_sin\(.*; so does wrong_cos at .*test_shadow.py:\d+"):
            lazy_core.barrier()
        del y


def test_wrong_integers_and_a_missing_nan_are_found():
    """No tolerance is for them."""
    with planted("wrong_count", lambda x: jnp.asarray(x > 0, jnp.int32) + 1, lambda x: (x > 0).astype(np.int32)) as wrong:
        y = wrong(array(4))
        with pytest.warns(shadow.ShadowWarning, match="the largest difference is 1"):
            lazy_core.barrier()
        del y
    with planted("lost_nan", lambda x: jnp.where(jnp.isnan(x), 0, x), lambda x: x) as wrong:
        y = wrong(values.from_host(np.array([1.0, np.nan], np.float32)))
        with pytest.warns(shadow.ShadowWarning, match=r"compiled 0.0 where native gives nan at \(1,\)"):
            lazy_core.barrier()
        del y


def test_strict_raises_and_the_values_can_still_be_read():
    """The compiled results are what they are; the barrier tells."""
    with planted("wrong_sin", lambda x: jnp.sin(x) + 1, np.sin) as wrong:
        y = wrong(array(4))
        with lazy_core.strict("shadow"), pytest.raises(errors.StrictError, match="wrong_sin"):
            lazy_core.barrier()
        assert values.to_host(y).max() > 1
        del y


def test_a_difference_is_told_once_and_counted_always():
    """A loop does not repeat itself."""
    x = array(4)
    with planted("wrong_sin", lambda x: jnp.sin(x) + 1, np.sin) as wrong:
        y = wrong(x)
        with pytest.warns(shadow.ShadowWarning):
            lazy_core.barrier()
        for _ in range(2):
            y = wrong(x)
            lazy_core.barrier()
        del y
    assert len(found()) == 1
    assert counted() == (3, 3)


def test_runs_are_chosen_by_number():
    """Every third run of each program, beginning with the first."""
    x = array(4)
    with lazy_core.options(shadow=3):
        for _ in range(7):
            y = ops.sin(x)
            lazy_core.barrier()
    assert counted() == (3, 0)
    with lazy_core.options(shadow="off"):
        y = ops.sin(x)
        lazy_core.barrier()
    assert counted() == (3, 0)
    del y


def test_tolerance_can_be_widened():
    """What is off by a hundred units passes where a thousand times the tolerance is allowed."""
    x = array(4)
    with planted("wrong_mul", lambda x: x * (1 + 1e-5), lambda x: x) as wrong:
        y = wrong(x)
        with pytest.warns(shadow.ShadowWarning):
            lazy_core.barrier()
        del y
    cache.clear()
    shadow._known.clear()
    with planted("wrong_sum", lambda x: x * (1 + 1e-5), lambda x: x) as wrong, lazy_core.options(shadow_tolerance=1000):
        wrong.family = "reductions"  # 16 + 16 units
        y = wrong(x)
        lazy_core.barrier()
        del y


def test_what_a_program_takes_over_is_copied_before():
    """Donation goes on in a shadowed run, and its inputs are compared all the same."""
    x = array(256, 256)
    held = values.to_host(x).copy()
    for _ in range(6):
        x = ops.add(mul(x, 0.5), x)
        lazy_core.barrier()
        held = np.float32(0.5) * held + held
    plan = cache.plans.entries()[-1]
    assert plan.donated
    np.testing.assert_allclose(values.to_host(x), held, rtol=1e-6)
    assert counted()[0] >= 6
    assert counted()[1] == 0


def test_no_difference_is_made_of_rounding():
    """Training steps with dropout, sums of many terms that cancel, solves of matrices that nearly have no inverse, comparisons."""
    state = values.from_host(random.make_state(7))
    x, w, target = array(64, 32), array(32, 8, seed=1), array(64, 8, seed=2)
    for _ in range(4):
        kept, state = ops.random_bernoulli(state, values.from_host(np.float32(0.8)), dims=(64, 32))
        hidden = ops.mul(x, ops.convert(kept, dtype=np.dtype(np.float32)))
        error = ops.sub(ops.matmul(hidden, w), target)
        w = ops.sub(w, mul(ops.matmul(ops.transpose(hidden, perm=(1, 0)), error), 0.001))
        noise, state = ops.random_normal(state, dims=(1000,), dtype=np.dtype(np.float32))
        lazy_core.barrier()
    many = array(20_000, scale=100.0)
    centred = ops.sub(many, ops.broadcast_to(ops.mean(many, axes=(0,), keepdims=True), dims=(20_000,)))
    total = ops.sum(centred, axes=(0,), keepdims=False)
    n = np.arange(12)
    hilbert = values.from_host((1 / (n[:, None] + n + 1)).astype(np.float32))
    solved = ops.solve(hilbert, array(12, 3))
    parts = ops.svd(array(6, 4), full_matrices=False)
    order = ops.argsort(ops.exp(many), axis=0, descending=False, stable=True, dtype=np.dtype(np.int64))
    steps = ops.floor(mul(ops.exp(ops.sin(many)), 7.0))
    lazy_core.barrier()
    assert counted()[0] >= 3
    assert counted()[1] == 0, found()
    del total, solved, parts, order, steps, noise


def test_chaos_is_rounding_and_a_fault_in_it_is_found_all_the_same():
    """A program that doubles every error gives other numbers compiled; no operation is to blame, until one is."""

    def logistic(x, rounds):
        for _ in range(rounds):
            x = mul(ops.mul(x, values.record(ops.sub, (ir.const(1.0, np.float32), x))), 3.9)
        return ops.sin(ops.exp(x))

    x = values.from_host(np.linspace(0.1, 0.9, 50, dtype=np.float32))
    for _ in range(3):
        y = logistic(x, 60)
        lazy_core.barrier()
    assert counted() == (3, 0)
    with planted("wrong_sin", lambda x: jnp.sin(x) * (1 + 1e-3), np.sin) as wrong:
        y = wrong(logistic(x, 60))
        with pytest.warns(shadow.ShadowWarning, match="wrong_sin"):
            lazy_core.barrier()
    del y


def test_what_is_wrong_only_in_company_is_found_by_bisection():
    """No operation differs by itself; the operation is named at which the compiled beginning of the program does."""
    company = []

    def leader(x):
        company.append(x + 1)
        return company[-1]

    x = array(8)
    with (
        planted("leader", leader, lambda x: x + 1) as first,
        planted("follower", lambda x: x * 2 if any(x is led for led in company) else x, lambda x: x) as second,
    ):
        y = ops.exp(second(first(ops.sin(ops.cos(x)))))
        with pytest.warns(shadow.ShadowWarning, match=r"follower\(f32\[8\]\) compiled together with the 3 operations before it"):
            lazy_core.barrier()
        del y


def test_a_program_that_compiling_anew_sets_right_is_told():
    """Such as a damaged one: nothing is wrong with any operation."""
    x = array(8)
    for _ in range(2):
        y = ops.sin(x)
        lazy_core.barrier()
    plan = cache.plans.entries()[-1]
    good = plan.executable
    plan.executable = lambda arrays, packed=(): [a + 1 for a in good(arrays, packed)]
    y = ops.sin(x)
    with pytest.warns(shadow.ShadowWarning, match=r"in the result of sin; compiled anew it does not"):
        lazy_core.barrier()
    del y


def test_a_failed_run_leaves_nothing_behind():
    """What failed is not compared, and the next run is."""
    x = array(8)
    for _ in range(2):
        y = ops.sin(x)
        lazy_core.barrier()
    plan = cache.plans.entries()[-1]
    good = plan.executable

    def broken(arrays, packed=()):
        raise RuntimeError("no")

    plan.executable = broken
    y = ops.sin(x)
    with contextlib.suppress(errors.ExecutionError):
        lazy_core.barrier()
    plan.executable = good
    before = counted()[0]
    y = ops.sin(x)
    lazy_core.barrier()
    assert counted() == (before + 1, 0)
    del y


@pytest.mark.parametrize(("given", "is_"), [("every", 1), ("off", 0), (10, 10), ("4", 4)])
def test_settings_are_words_or_numbers(given, is_):
    """As an option and as an environment variable."""
    with lazy_core.options(shadow=given):
        assert lazy_core.config.shadow == is_


@pytest.mark.parametrize(("name", "given"), [("shadow", "often"), ("shadow", -1), ("shadow_tolerance", "wide"), ("shadow_tolerance", -1.0)])
def test_a_wrong_setting_is_refused(name, given):
    """With what it must be."""
    with pytest.raises(ValueError, match=f"{name} must be"), lazy_core.options(**{name: given}):
        pass


def test_the_command_shadows_a_script(tmp_path, capfd):
    """`lazy run --shadow`: everything is compiled, a difference makes the exit status 3, and the report has it."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, numpy as np\n"
        "from lazy_core import barrier, ops, values\n"
        "x = values.from_host(np.ones(5, np.float32))\n"
        "for _ in range(4):\n"
        "    y = ops.REGISTRY[sys.argv[1]](x)\n"
        "    barrier()\n"
    )
    run = ["run", "--shadow", "--frontend", "none", str(script)]
    with pytest.MonkeyPatch.context() as patch, planted("wrong_sin", lambda x: jnp.sin(x) + 1, np.sin), warnings.catch_warnings():
        warnings.simplefilter("ignore", shadow.ShadowWarning)
        patch.setenv("LAZY_TIER", "compiled")
        patch.delenv("LAZY_TIER")  # and put it back
        assert cli.main([*run, "cos"]) == 0
        assert counted() == (4, 0)
        assert cli.main([*run, "wrong_sin"]) == 3
    shown = capfd.readouterr().err
    assert "wrong_sin(f32[5]) given equal operands" in shown
    assert "program.py:5" in shown
