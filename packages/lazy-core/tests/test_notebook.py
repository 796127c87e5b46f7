"""What notebooks show: pending values with their graphs, and reports; nothing runs for it."""

import re

import numpy as np
import pytest

import lazy_core
from lazy_core import notebook, ops, values


@pytest.fixture
def pending():
    lazy_core.barrier()
    x = values.from_host(np.ones((2, 3), np.float32))
    yield ops.tanh(ops.add(x, x))
    lazy_core.barrier()


def test_a_pending_value_shows_its_graph_and_stays_pending(pending):
    """Shape, the line, a picture, the operations; one self-contained piece of HTML."""
    before = lazy_core.report().counters
    text = pending._repr_html_()
    assert "f32[2,3]" in text
    assert "2 operations recorded, the last <code>tanh</code> at" in text
    assert "test_notebook.py" in text
    assert "<svg" in text
    assert "add(%0, %0)" in text
    assert not re.search(r"https?:|<script|src=", text)
    assert pending.pending
    assert lazy_core.report().counters == before


def test_a_bundle_has_text_beside_html_so_that_repr_is_not_asked(pending):
    """A notebook that finds text/plain in the bundle calls no `repr`, which would compute a frontend's tensor."""
    found = pending._repr_mimebundle_()
    assert set(found) == {"text/html", "text/plain"}
    assert found["text/plain"].startswith("<lazy f32[2,3], pending: 2 operations, last tanh")
    assert set(pending._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(pending._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}


def test_what_is_computed_is_shown_as_always(pending):
    """None lets the notebook fall back to `repr`."""
    lazy_core.barrier()
    assert pending._repr_html_() is None
    assert pending._repr_mimebundle_() is None
    assert "computed" in notebook.describe(pending)


def test_any_class_can_be_given_it():
    """Objects of it that are no lazy tensors are left alone."""

    class Tensor:
        def __init__(self, value):
            self.value = value

        def __lazy_core_value__(self):
            if self.value is None:
                raise TypeError("not on the lazy device")
            return self.value

        def __repr__(self):
            raise AssertionError("this would compute it")

    notebook.attach(Tensor)
    lazy = Tensor(ops.sin(values.from_host(np.ones(3, np.float32))))
    assert "<b>Tensor</b> <code>f32[3]</code>" in lazy._repr_html_()
    assert Tensor(None)._repr_html_() is None
    assert Tensor(None)._repr_mimebundle_() is None


def test_long_graphs_show_their_end():
    """The last lines, and how many were left out."""
    x = values.from_host(np.ones(3, np.float32))
    for _ in range(300):
        x = ops.add(x, x)
    text = notebook.describe(x)
    assert "... 242 lines before" in text
    assert "<svg" not in text
    assert len(text) < 20_000


def test_a_report_is_a_table(pending):
    """Counters that are not zero, events with their lines, escaped."""
    lazy_core.events.fallback("torch", "aten::nothing", "no lowering <yet>")
    text = lazy_core.report()._repr_html_()
    assert text.startswith('<div class="lazy-box">')
    assert "recorded" in text
    assert "no lowering &lt;yet&gt;" in text
    assert "test_notebook.py" in text
