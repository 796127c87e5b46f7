"""Forks, interrupts and exits: no deadlock, no crash, nothing wrong afterwards."""

import os
import subprocess
import sys
import textwrap

PREAMBLE = """
import os, signal, sys, threading, time
import numpy as np
import lazy_core, lazy_numpy
x = lazy_numpy.asarray(np.arange(3.0))
"""


def printed(body):
    """The lines that a program in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "LAZY_TIER": "compiled"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_a_forked_child_that_uses_pending_arrays_gets_a_clear_error():
    """And the parent goes on."""
    out = printed(
        """
        float((x * 3).sum())
        y = x + 1
        child = os.fork()
        if child == 0:
            try:
                y.tolist()
            except Exception as error:
                print("child:", "spawn" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", y.tolist())
        """
    )
    assert out == ["child: True", "parent: [1.0, 2.0, 3.0]"]


def test_exit_with_pending_work_is_silent():
    """Pending arrays and views that outlive the interpreter's modules."""
    assert printed("import builtins\nsys.keep, builtins.keep, np.keep = x + 1, (x * 2)[1:], [x.sum()]") == []


def test_an_interrupt_while_it_waits_for_a_result_ends_in_a_consistent_state():
    """Ctrl-C during a read of what is being computed: the value is there afterwards."""
    out = printed(
        """
        y = big = lazy_numpy.asarray(np.eye(1000, dtype=np.float32))
        for _ in range(60):
            y = y @ big
        lazy_core.barrier()  # compiled and handed to the device by now
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            np.array(y)
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted")
        print(y[0, :2].tolist(), (x + 1).tolist())
        """
    )
    assert out == ["interrupted", "[1.0, 0.0] [1.0, 2.0, 3.0]"]
