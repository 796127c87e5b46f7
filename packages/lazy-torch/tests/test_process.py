"""An interrupt while the host waits for the device; forks, exits and interrupts of compiles are in `test_barriers.py`."""

import os
import subprocess
import sys
import textwrap

PREAMBLE = """
import os, signal, sys, threading, time
import torch
import lazy_core
x = torch.arange(3.0, device="lazy")
"""


def printed(body: str) -> list[str]:
    """The lines that a program in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_an_interrupt_while_it_waits_for_a_result_ends_in_a_consistent_state() -> None:
    """Ctrl-C during a read, and during a barrier that waits: the values are there afterwards."""
    out = printed(
        """
        big = torch.eye(1000).to("lazy")
        for wait in (lambda y: y.cpu(), lambda y: lazy_core.barrier(wait=True)):
            y = big
            for _ in range(60):
                y = y @ big
            lazy_core.barrier()  # compiled and handed to the device by now
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                wait(y)
                time.sleep(60)
            except KeyboardInterrupt:
                print("interrupted")
            print(y[0, :2].tolist(), (x + 1).tolist())
        """
    )
    assert out == ["interrupted", "[1.0, 0.0] [1.0, 2.0, 3.0]"] * 2


def test_an_interrupt_during_a_step_leaves_the_parameters_as_they_were_or_stepped() -> None:
    """Ctrl-C at any moment of a training loop: each parameter is whole, and training goes on."""
    out = printed(
        """
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to("lazy")
        optimizer = torch.optim.Adam(model.parameters())
        data = torch.ones(4, 8).to("lazy")
        def step():
            optimizer.zero_grad()
            model(data).pow(2).mean().backward()
            optimizer.step()
        for _ in range(3):
            step()
        for _ in range(5):
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                while True:
                    step()
            except KeyboardInterrupt:
                pass
        step()
        print(all(torch.isfinite(p).all().item() for p in model.parameters()), torch.isfinite(model(data)).all().item())
        """
    )
    assert out == ["True True"]
