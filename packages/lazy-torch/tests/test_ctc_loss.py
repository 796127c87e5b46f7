"""The loss of connectionist temporal classification in all the ways that torch takes its labels, values and gradients against the CPU."""

import pytest
import torch

import lazy_core

T, N, C = 9, 4, 5
LENGTHS = [9, 7, 9, 5]
LABELS = [3, 0, 4, 2]  # one sequence without labels
PADDED = torch.tensor([[1, 1, 2, 0], [0, 0, 0, 0], [3, 4, 3, 3], [2, 2, 0, 0]])
JOINED = torch.cat([row[:n] for row, n in zip(PADDED, LABELS, strict=True)])


def _run(device, targets=PADDED, lengths=LENGTHS, labels=LABELS, as_tensors=False, reduction="none", **how):
    torch.manual_seed(0)
    x = torch.randn(T, N, C).to(device).requires_grad_()
    if as_tensors:
        lengths, labels = torch.tensor(lengths), torch.tensor(labels)
    loss = torch.nn.functional.ctc_loss(x.log_softmax(-1), targets.to(device), lengths, labels, reduction=reduction, **how)
    return loss.detach(), *torch.autograd.grad(loss.sum(), x)


NOTHING = torch.zeros(N, 0, dtype=torch.int64)
CASES = {
    "padded": {"targets": PADDED},
    "joined int32": {"targets": JOINED.int(), "reduction": "mean"},
    "impossible": {"lengths": [9, 7, 2, 5]},
    "no gradient of the impossible": {"lengths": [9, 7, 2, 5], "zero_infinity": True},
    "no labels": {"targets": NOTHING, "labels": [0] * N},
    "no labels joined": {"targets": NOTHING[0], "labels": [0] * N},
    "another blank, lengths in tensors": {"targets": PADDED.clamp(max=3), "blank": 4, "as_tensors": True, "reduction": "sum"},
}


@pytest.fixture(scope="module")
def results():
    """All of them recorded before the first is read: one program."""
    before = lazy_core.report().counters["fallbacks"]
    found = {name: _run("lazy", **case) for name, case in CASES.items()}
    assert lazy_core.report().counters["fallbacks"] == before
    return {name: [value.cpu() for value in values] for name, values in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_equal_the_cpu(results, name):
    """Padded and joined labels, int32 ones, lengths in lists and tensors, more labels than frames, no labels, another blank."""
    for found, expected in zip(results[name], _run("cpu", **CASES[name]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_other_lengths_are_the_same_program():
    """Lengths are values: batches that differ in them only compile nothing."""
    for lengths, labels in ((LENGTHS, LABELS), ([8, 8, 9, 9], [2, 0, 4, 1])):
        loss = _run("lazy", lengths=lengths, labels=labels)[0]
        before = lazy_core.report().counters["compiles"]
        torch.testing.assert_close(loss.cpu(), _run("cpu", lengths=lengths, labels=labels)[0])
    assert lazy_core.report().counters["compiles"] == before == 1


def test_lengths_that_do_not_fit_are_an_error():
    """At once, with the CPU's words."""
    for how, words in (
        ({"lengths": [10, 7, 9, 5]}, "Expected input_lengths to have value at most 9"),
        ({"labels": [5, 0, 4, 2]}, "Expected tensor to have size at least 5 at dimension 1, but got size 4"),
        ({"lengths": [9, 7]}, "input_lengths must be of size batch_size"),
        ({"labels": [3, -1, 4, 2]}, "Expected target_lengths to have value at least 0"),
        ({"targets": JOINED[1:]}, "Expected tensor to have size 9 at dimension 0, but got size 8"),
        ({"labels": [3, 1]}, "target_lengths must be of size batch_size"),
        ({"blank": 5}, "blank must be in label range"),
    ):
        for device in ("cpu", "lazy"):
            with pytest.raises(RuntimeError, match=words):
                _run(device, **how)
