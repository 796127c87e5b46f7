"""Random programs on shared storages, by everything that re-binds or re-reads one: as_strided, set_, .data, resize_, out=, other dtypes.

Owns: a program is a list of small integers that Hypothesis shortens; each step applies one action to the same tensors of both devices.
After every program values, strides, offsets, version counters and who shares with whom are those of the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import lazy_core

Tensors = list[Tensor]
Action = Callable[[Tensors, int, int], None]


def _pick(tensors: Tensors, k: int) -> Tensor:
    return tensors[k % len(tensors)]


def _as_strided(tensors: Tensors, k: int, n: int) -> None:
    """A window on the whole storage, perhaps with elements that lie over each other."""
    t = _pick(tensors, k)
    room = t.untyped_storage().nbytes() // t.element_size()
    sizes, strides = [((2, 3), (3, 1)), ((3, 2), (1, 2)), ((2, 3), (1, 1)), ((4,), (2,)), ((3, 2), (0, 1))][n % 5]
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if room > last:
        tensors.append(t.as_strided(sizes, strides, n % (room - last)))


def _transposed(tensors: Tensors, k: int, n: int) -> None:
    t = _pick(tensors, k)
    if t.dim():
        tensors.append(t.transpose(0, n % t.dim()))


def _sliced(tensors: Tensors, k: int, n: int) -> None:
    t = _pick(tensors, k)
    if t.dim():
        tensors.append(t[n % (t.size(0) + 1) :: 1 + n % 2])


def _as_integers(tensors: Tensors, k: int, n: int) -> None:
    t = _pick(tensors, k)
    if t.dtype == torch.float32:
        tensors.append(t.view(torch.int32))


def _as_complex(tensors: Tensors, k: int, n: int) -> None:
    """Pairs of floats as complex numbers, and complex numbers as pairs."""
    t = _pick(tensors, k)
    if t.is_complex():
        tensors.append(torch.view_as_real(t))
    elif t.dtype == torch.float32 and t.dim() and t.size(-1) == 2 and t.stride(-1) == 1:
        even = t.storage_offset() % 2 == 0 and all(s % 2 == 0 for s in t.stride()[:-1])
        if even:
            tensors.append(torch.view_as_complex(t))


def _detached(tensors: Tensors, k: int, n: int) -> None:
    tensors.append(_pick(tensors, k).detach())


def _rebound(tensors: Tensors, k: int, n: int) -> None:
    """`.data =`: old views stay with the old storage."""
    t, other = _pick(tensors, k), _pick(tensors, n)
    if t.dtype == other.dtype:
        t.data = other.data


def _set(tensors: Tensors, k: int, n: int) -> None:
    t, other = _pick(tensors, k), _pick(tensors, n)
    if t.dtype == other.dtype:
        t.set_(other)


def _resized(tensors: Tensors, k: int, n: int) -> None:
    """Smaller only: what a larger storage holds at its end is anything on the CPU."""
    t = _pick(tensors, k)
    if t.is_contiguous() and t.numel() > 1:
        t.resize_(1 + n % t.numel())


def _written_out(tensors: Tensors, k: int, n: int) -> None:
    t, source = _pick(tensors, k), _pick(tensors, n)
    if t.dtype == source.dtype == torch.float32 and t.shape == source.shape and _dense(t):
        torch.add(source.clone(), 1, out=t)


def _dense(t: Tensor) -> bool:
    """Whether no two elements lie over each other, so that a write means one thing."""
    steps = sorted((stride, size) for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1)
    reach = 0
    for stride, size in steps:
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _added(tensors: Tensors, k: int, n: int) -> None:
    t = _pick(tensors, k)
    if _dense(t):
        t.add_(n)


def _filled(tensors: Tensors, k: int, n: int) -> None:
    _pick(tensors, k).fill_(n % 5)


def _copied(tensors: Tensors, k: int, n: int) -> None:
    t, source = _pick(tensors, k), _pick(tensors, n)
    if _dense(t) and t.numel() == source.numel() and t.is_complex() == source.is_complex():
        t.copy_(source.clone().reshape(t.shape))


def _accumulated(tensors: Tensors, k: int, n: int) -> None:
    """What another view shows, added where a third one points."""
    t = _pick(tensors, k)
    if t.dtype == torch.float32 and t.dim() and t.size(0) and _dense(t):
        t.index_add_(0, torch.tensor([n % t.size(0)] * 2, device=t.device), t[:1].clone().expand(2, *t.shape[1:]))


def _barrier(tensors: Tensors, k: int, n: int) -> None:
    if tensors[0].device.type == "lazy":
        lazy_core.barrier()


ACTIONS: list[Action] = [
    _as_strided,
    _transposed,
    _sliced,
    _as_integers,
    _as_complex,
    _detached,
    _rebound,
    _set,
    _resized,
    _written_out,
    _added,
    _filled,
    _copied,
    _accumulated,
    _barrier,
]


def _sharing(tensors: Tensors) -> list[int]:
    """For each tensor the first one with the same storage."""
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [places.index(place) for place in places]


steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=14)


@pytest.mark.parametrize("tier", ["native", "compiled"])
def test_random_programs_on_shared_storages_equal_the_cpu(tier: str) -> None:
    @settings(max_examples=60 if tier == "native" else 15, deadline=None)
    @given(steps)
    def run(program: list[tuple[Action, int, int]]) -> None:
        base = torch.arange(12.0).reshape(3, 4)
        cpu, lazy = [base.clone(), base[:, :2].clone()], [base.to("lazy"), base[:, :2].clone().to("lazy")]
        for action, k, n in program:
            for tensors in (cpu, lazy):
                action(tensors, k, n)
        for found, expected in zip(lazy, cpu, strict=True):
            assert (found.dtype, found.shape, found.storage_offset()) == (expected.dtype, expected.shape, expected.storage_offset())
            assert found.stride() == expected.stride()
            assert found._version == expected._version
        assert _sharing(lazy) == _sharing(cpu)
        for found, expected in zip(lazy, cpu, strict=True):
            bits = torch.view_as_real(expected.resolve_conj()) if expected.is_complex() else expected
            seen = torch.view_as_real(found) if found.is_complex() else found
            assert torch.equal(seen.cpu().contiguous().view(torch.int32), bits.contiguous().view(torch.int32))

    with lazy_core.options(tier=tier), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # resize_ of something that has elements
        run()
