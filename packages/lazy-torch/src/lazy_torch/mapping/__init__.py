"""From ATen operations to core operations: the registry of builders, and what a builder is given and must return.

Owns: `BUILDERS`, the `aten` decorator, and the loading of the family files beside this one.  A family file may import `lazy_core` and
this package's helpers, never torch's private modules; it is imported on the first recorded operation, not by `import torch`.

A *builder* describes one ATen overload at expression level.  It is looked up as "name.overload", or "name" where the overload is the
default one, and is called once per new combination of operation, inputs and attributes (afterwards the native recorder finds the result
by itself), so it must be a pure function of its arguments and need not be fast.  It runs with the trace locked; it must not read values.

What a builder is given: the schema's arguments in order, keyword-only ones by keyword, defaults filled in.

===================  ===================================================================================================================
schema type          argument
===================  ===================================================================================================================
Tensor               an `Expr` with the tensor's logical dims (strides do not exist here); or, where torch was given a Python number (a
                     wrapped number: `x + 2`), that number; or, where that number changes from step to step, a `ScalarLeaf` (use
                     `is_number(x)`): it takes part in type promotion as a Python number, of kind f64, s64 or c128.  A zero-dim CPU
                     tensor that is not a Python number comes as an ordinary 0-d `Expr` of its own dtype.
Tensor?              the same, or None
Tensor[], Tensor?[]  a tuple of the above
Scalar, Scalar?      a Python bool, int, float or complex; or a `ScalarLeaf` standing for a number fed at run time (never a bool)
Scalar[]             a tuple of these
int, float, bool,    as in Python; lists are tuples.  Never fed at run time, except floats named in `lift=`
str, lists of them
ScalarType           an `np.dtype` (ml_dtypes for bfloat16 and float8), or None
Device, Layout,      None (also `pin_memory`)
MemoryFormat
Generator            None; see `random`
===================  ===================================================================================================================

What a builder returns: first the schema's returns that do not alias an argument (an `Expr`, or None for an undefined tensor; a `Tensor[]`
return is one list or tuple of expressions), then the new values of the arguments that it writes to, in schema order (for a `Tensor[]`
argument a list; None: unchanged). One thing may be returned bare, several as a tuple.  Examples: `add.Tensor` -> expr; `sort` -> (values,
indices); `split` -> [a, b]; `_fused_adam_` -> (new_self_list, new_grads_list, ...); `native_batch_norm`, which writes its running
statistics although its schema does not say so (see HIDDEN_WRITES) -> (out, save_mean, save_invstd, new_running_mean, new_running_var).
Dims and dtypes are held against torch's own meta inference: they must agree exactly.

Not to be written here, since they are derived from the functional builder unless their exact name is registered:

* in-place variants: `add_.Tensor` from `add.Tensor`, `relu_` from `relu` (`fill_.Scalar` from `fill.Scalar`, `zero_` from `zero`).  The
  functional result is converted to self's dtype and broadcast to self's dims, then written to self's storage.
* `out=` variants: from the functional overload with the same other arguments (`add.out` from `add.Tensor`, `sum.IntList_out` from
  `sum.dim_IntList`); a factory is told the dtype of `out` (`eye.out` from `eye`).
* any operation without a builder that has a kernel composed of other ATen operations (CompositeExplicitAutograd) runs that: `zeros`,
  `_to_copy`, `add.Scalar`, `randn`, every `_foreach_*` in a loop; a builder takes precedence over it.
* view operations: they only change metadata.

A builder that cannot express certain arguments raises `lazy_core.errors.UnsupportedError("reason")`: torch's composed kernel or the CPU
kernel then runs, which is counted and named.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lazy_core.ir import Expr, ScalarLeaf

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Builder:
    """A builder and what the native recorder must know of it.

    Attributes:
        fn: the function described in the module's docstring.
        random: it draws random numbers: it is given the state (u64[2] seed and counter) as an extra first argument and returns the next
            state as an extra last result.
        static: names of Scalar (or Tensor, for wrapped numbers) arguments that are never fed at run time, since shapes depend on them.
        lift: names of `float` arguments that may be fed at run time as well, such as a learning rate.
    """

    fn: Callable[..., Any]
    random: bool = False
    static: tuple[str, ...] = ()
    lift: tuple[str, ...] = ()


BUILDERS: dict[str, Builder] = {}

# Arguments that an operation writes to although its schema does not say so.
HIDDEN_WRITES: dict[str, tuple[str, ...]] = {"native_batch_norm": ("running_mean", "running_var")}


def aten(*names: str, random: bool = False, static: tuple[str, ...] = (), lift: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Register a function as the builder of ATen overloads, such as `@aten("add.Tensor")` (see the module's docstring).

    Raises:
        ValueError: a name is registered already.
    """

    def register(fn: F) -> F:
        for name in names:
            if name in BUILDERS:
                raise ValueError(f"aten::{name} has two builders: {BUILDERS[name].fn.__module__} and {fn.__module__}")
            BUILDERS[name] = Builder(fn, random, tuple(static), tuple(lift))
        return fn

    return register


def is_number(x: object) -> bool:
    """Whether an argument is a Python number, baked in or fed at run time, and not a tensor."""
    return not isinstance(x, Expr) or isinstance(x, ScalarLeaf)


_loaded = False


def load() -> dict[str, Builder]:
    """Import every family file once; returns BUILDERS."""
    global _loaded
    if not _loaded:
        _loaded = True
        for module in pkgutil.iter_modules(__path__):
            importlib.import_module(f"{__name__}.{module.name}")
    return BUILDERS
