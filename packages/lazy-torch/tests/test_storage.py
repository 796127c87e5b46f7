"""Views and writes in place through shared storage, held against CPU torch."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazy_core


def both(program: Callable[[str], object]) -> None:
    lazy, cpu = program("lazy"), program("cpu")
    for a, b in zip(lazy if isinstance(lazy, tuple) else (lazy,), cpu if isinstance(cpu, tuple) else (cpu,), strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach().cpu())
        assert a.stride() == b.stride()


def test_writes_through_every_kind_of_view() -> None:
    def program(d: str) -> torch.Tensor:
        x = torch.arange(24.0, device=d).view(2, 3, 4).clone()
        x[0].add_(1)
        x[:, 1].mul_(2)
        x.transpose(0, 2)[1:3].sub_(3)
        x.diagonal(0, 1, 2).zero_()
        a, b = x.split([1, 2], 1)
        b.copy_(a.expand_as(b))
        x.flatten()[5:7] = 9
        x.unfold(2, 2, 1)[0, 0, 0].fill_(-1)
        x.permute(2, 0, 1).select(0, 1).exp_()
        x[x > 10] = 0
        x[[0, 1], [1, 2]] = 7
        x.view(torch.int32)
        x.as_strided((2, 2), (3, 1), 1).add_(100)
        x.detach().add_(1)
        return x

    both(program)


def test_a_view_sees_later_writes_and_a_copy_does_not() -> None:
    def program(d: str) -> tuple[torch.Tensor, ...]:
        x = torch.zeros(4, 4, device=d)
        view, copy = x[1:3, ::2], x[1:3, ::2].clone()
        x.add_(1)
        view.mul_(5)
        return x, view, copy, view.t().contiguous()

    both(program)


def test_overlapping_copy_within_one_storage() -> None:
    def program(d: str) -> torch.Tensor:
        x = torch.arange(8.0, device=d)
        x[1:].copy_(x[:-1].clone())
        y = x.flip(0)
        x[:4] = x[4:]
        return x + y

    both(program)


def test_data_assignment_leaves_old_views_alone() -> None:
    def program(d: str) -> tuple[torch.Tensor, ...]:
        p = torch.nn.Parameter(torch.ones(4, device=d))
        old = p.data[1:]
        p.data = torch.zeros(4, device=d)
        p.data.add_(3)
        old.mul_(2)
        return p, old

    both(program)


def test_views_under_autograd() -> None:
    def program(d: str) -> torch.Tensor:
        p = torch.arange(6.0).to(d).requires_grad_()
        x = p * 2
        x[1:3].mul_(3)
        x.view(2, 3)[1].mul_(4)
        v = x[::2]
        v += 1
        x.sigmoid().sum().backward()
        return p.grad

    both(program)


def test_writing_to_a_saved_tensor_is_an_error() -> None:
    x = torch.ones(3, device="lazy", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize(
    "pair",
    [
        (torch.float32, torch.int32),
        (torch.float32, torch.uint8),
        (torch.int64, torch.int16),
        (torch.float64, torch.float32),
        (torch.bool, torch.uint8),
    ],
)
def test_views_of_another_dtype(pair: tuple[torch.dtype, torch.dtype]) -> None:
    def program(d: str) -> tuple[torch.Tensor, ...]:
        x = torch.arange(8).remainder(3).to(pair[0]).to(d)
        y = x.view(pair[1])
        y[1:3] = 1 if pair[1] != torch.bool else True
        z = x[2:6].view(pair[1])
        return x, y + 1, z.clone()

    both(program)


def test_complex_and_real_views_share_storage() -> None:
    def program(d: str) -> tuple[torch.Tensor, ...]:
        z = torch.arange(4.0).view(2, 2).to(d)
        c = torch.view_as_complex(z)
        c2 = c.conj() * c + c.abs()
        torch.view_as_real(c)[0].mul_(5)
        c.imag.add_(1)
        return torch.view_as_real(c2.resolve_conj()), z, torch.view_as_real(c.conj().clone())

    both(program)


def test_resize_and_out() -> None:
    def program(d: str) -> tuple[torch.Tensor, ...]:
        x = torch.arange(3.0, device=d)
        x.resize_(5)
        x[3:] = 7
        out = torch.empty(0, device=d)
        torch.add(torch.ones(3, device=d), 1, out=out)
        part = torch.zeros(2, 3, device=d)
        torch.mul(torch.ones(3, device=d), 4, out=part[1])
        y = torch.ones(2, device=d)
        y.set_(x)
        y.add_(1)
        return x, out, part, y

    both(program)
    with pytest.warns(UserWarning, match="resized"):
        torch.add(torch.ones(3, device="lazy"), 1, out=torch.empty(2, device="lazy"))


def test_channels_last_strides() -> None:
    def program(d: str) -> tuple[torch.Tensor, ...]:
        x = torch.arange(2 * 3 * 4 * 4.0).view(2, 3, 4, 4).to(d).to(memory_format=torch.channels_last)
        return x, x + 1, x.contiguous(), x[:, 1]

    both(program)


def test_unwritten_storage_reads_as_zeros() -> None:
    x = torch.empty(3, 2, device="lazy")
    assert x.sum().item() == 0
    y = torch.empty(4, device="lazy")
    y[1:3] = 5
    assert y.tolist() == [0, 5, 5, 0]


def test_printing_twice_reads_the_same_value() -> None:
    x = torch.ones(3, device="lazy")
    x += 1
    assert repr(x) == repr(x)
    x += 1
    assert x.tolist() == [3, 3, 3]


def test_forgetting_old_expressions_changes_no_value() -> None:
    def program(d: str) -> torch.Tensor:
        z = torch.ones(4, device=d)
        for i in range(40):
            z = (z + i % 7).roll(i % 3) * 0.5
            z.view(2, 2).t().add_(1)
            if i % 3 == 0:
                lazy_core.barrier()
        return z

    with lazy_core.options(max_exprs=20):
        both(program)


# ------------------------------------------------------------------ random programs


def _view(rng: random.Random, t: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A random view of a tensor, as a function to be applied to either device's tensor."""
    if t.dim() == 0:
        return lambda x: x.view(1)
    axis = rng.randrange(t.dim())
    size = t.size(axis)
    kind = rng.choice(["select", "slice", "transpose", "flatten", "unsqueeze", "narrow", "diagonal", "split"])
    if kind == "select" and size and t.dim() > 1:
        index = rng.randrange(size)
        return lambda x: x.select(axis, index)
    if kind == "transpose":
        other = rng.randrange(t.dim())
        return lambda x: x.transpose(axis, other)
    if kind == "flatten" and t.is_contiguous():
        return lambda x: x.view(-1)
    if kind == "unsqueeze" and t.dim() < 4:
        return lambda x: x.unsqueeze(axis)
    if kind == "diagonal" and t.dim() >= 2:
        return lambda x: x.diagonal(0, 0, 1)
    if kind == "split" and size > 1:
        return lambda x: x.split(size - 1, axis)[1]
    start = rng.randrange(size + 1)
    step = rng.choice([1, 2])
    return lambda x: x[(slice(None),) * axis + (slice(start, None, step),)]


def _strides(t: torch.Tensor) -> list[int]:
    """The strides that address anything: those of dims of one element do not."""
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_random_programs_of_views_and_writes_equal_the_cpu(seed: int) -> None:
    rng = random.Random(seed)
    base = torch.arange(24.0).view(rng.choice([(24,), (4, 6), (2, 3, 4)]))
    cpu, lazy = [base.clone()], [base.to("lazy")]
    for _ in range(rng.randrange(3, 12)):
        k = rng.randrange(len(cpu))
        action = rng.choice(["view", "view", "view", "add", "mul", "fill", "copy", "new", "barrier", "iadd"])
        if action == "view":
            view = _view(rng, cpu[k])
            cpu.append(view(cpu[k]))
            lazy.append(view(lazy[k]))
        elif action == "add":
            for s in (cpu, lazy):
                s[k].add_(2)
        elif action == "mul":
            for s in (cpu, lazy):
                s[k].mul_(s[k].sum().detach().clamp(-3, 3))
        elif action == "fill":
            for s in (cpu, lazy):
                s[k].fill_(k)
        elif action == "copy":
            other = [j for j in range(len(cpu)) if cpu[j].numel() == cpu[k].numel()]
            j = rng.choice(other)
            for s in (cpu, lazy):
                s[k].copy_(s[j].clone().reshape(s[k].shape))
        elif action == "iadd":
            for s in (cpu, lazy):
                s[k] += torch.ones_like(s[k])
        elif action == "new":
            for s in (cpu, lazy):
                s.append(s[k] + 1)
        else:
            lazy_core.barrier()
    for a, b in zip(lazy, cpu, strict=True):
        assert a.shape == b.shape
        assert _strides(a) == _strides(b)
        torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_batches_sliced_from_a_tensor_of_the_device_are_one_program() -> None:
    """`x[i : i + 8]` step by step: the offset is fed at run time once it has changed, for reads, writes and host reads alike."""
    data = torch.randn(64, 5)
    x, sums = data.to("lazy"), torch.zeros(8, device="lazy")
    lazy_core.barrier()
    for epoch in range(3):
        for k in range(8):
            batch = x[8 * k : 8 * k + 8]
            sums[k] = (batch * batch).sum() + batch[:, 1].mean() * (epoch + 1)
            lazy_core.barrier()
            if (epoch, k) == (0, 2):
                lazy_core.reset_report()
        cpu = torch.stack([(b * b).sum() + b[:, 1].mean() * (epoch + 1) for b in data.split(8)])
        torch.testing.assert_close(sums.cpu(), cpu, rtol=1e-5, atol=1e-5)
    assert lazy_core.report().counters["compiles"] <= 2
    before = lazy_core.report().counters["compiles"]
    assert [x[i, 2].item() for i in range(64)] == data[:, 2].tolist()
    assert lazy_core.report().counters["compiles"] <= before + 2


def test_moving_offsets_and_changing_numbers_in_one_operation_keep_their_slots() -> None:
    """Offsets of several operands and a number of the same operation are fed in the order in which programs expect them."""
    data = torch.randn(10, 4)
    x = data.to("lazy")
    out = torch.zeros(10, 4, device="lazy")
    expected = torch.zeros(10, 4)
    for k in range(9):
        out[k].copy_(torch.add(x[k], x[k + 1], alpha=k + 0.5))
        expected[k].copy_(torch.add(data[k], data[k + 1], alpha=k + 0.5))
        out[k : k + 2].mul_(k + 1)
        expected[k : k + 2].mul_(k + 1)
        lazy_core.barrier()
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_products_written_into_conjugated_views() -> None:
    """torch hands these their result with its bit: it is carried out before, and put back after."""

    def program(d: str) -> tuple[torch.Tensor, ...]:
        x = torch.complex(torch.arange(12.0), -torch.arange(12.0) + 3).view(3, 4).to(d)
        y = (torch.ones(3, 3, dtype=x.dtype, device=d) * (2 + 1j)).conj()
        same = y.addmm_(x, x.mH)
        assert same is y
        z = torch.ones(3, 3, dtype=x.dtype, device=d).conj()
        torch.mm(x, x.mH, out=z)
        w = torch.ones(3, dtype=x.dtype, device=d).conj()
        w.addmv_(x, x[0])
        return y.resolve_conj(), z.resolve_conj(), w.resolve_conj(), (y * 1j).resolve_conj()

    both(program)
