"""What a report shows, on a terminal, in a file and on its page."""

import io
import itertools
import re

import numpy as np
import pytest

import lazy_core
from lazy_core import drawing, dump, ops, page, summary, values
from lazy_core.cache import cache
from lazy_core.events import Event
from lazy_core.report import Report

HERE = "test_report.py"


@pytest.fixture
def report():
    """The report of a small program that ran twice, and of an operation that fell back."""
    lazy_core.barrier()
    cache.clear()
    lazy_core.reset_report()
    x = values.from_host(np.ones((2, 31), np.float32))  # of no other test: an expression that was recorded before keeps its line
    for _ in range(3):
        x = ops.tanh(ops.add(x, x))
        lazy_core.barrier()
    lazy_core.events.fallback("torch", "aten::nothing", "no lowering <yet>")
    return lazy_core.report()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_gets_tables_in_colour(report, monkeypatch):
    """Counters, causes with the user's line, and fallbacks with their reason."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    report.show(stream)
    shown = stream.getvalue()
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    for expected in (
        "6 operations recorded, 3 barriers, 1 program compiled",
        "the first program of 2 operations",
        HERE,
        "no lowering <yet>",
    ):
        assert expected in plain


def test_a_file_gets_plain_text(report, tmp_path, capsys):
    """No colour codes, whether it is shown or printed."""
    path = tmp_path / "report.txt"
    with path.open("w") as file:
        report.show(file)
    report.show()
    assert path.read_text() == f"{report}\n" == capsys.readouterr().out
    assert "\x1b" not in path.read_text()
    assert "compiles         1" in path.read_text()


def test_colour_is_left_out_where_the_user_says_so(report, monkeypatch):
    """NO_COLOR is obeyed."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    report.show(stream)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", stream.getvalue())


def test_a_reports_repr_is_one_line(report):
    """At a prompt, the headline."""
    assert repr(report).startswith("<lazy report: 6 operations recorded")
    assert "\n" not in repr(report)


def run(site, end, seconds, kind="execute"):
    """An event of a run that ended at a time."""
    return Event(kind, "a host read", site, 5, seconds, 0, end)


def test_recording_reaches_from_one_barrier_to_the_next():
    """Less what the later one compiled; a compile in the background takes nothing away."""
    events = [
        run("a.py:1", 10.0, 0.5),
        Event("compile", "", "a.py:2", 5, 2.0, 0, 13.0),
        run("a.py:2", 13.6, 0.59),
        Event("compile", "in the background", "a.py:2", 5, 0.5, 0, 14.2),
        run("a.py:3", 16.0, 1.0, kind="native"),
    ]
    assert [(r.begin, r.end, r.site) for r in summary.recording(events)] == [(10.0, 11.0, "a.py:2"), (13.6, 15.0, "a.py:3")]


def test_runs_are_summed_by_line():
    """The line that took longest first; both tiers apart."""
    found = summary.runs_by_line([run("a.py:1", 1, 0.1), run("b.py:1", 2, 0.5, "native"), run("a.py:1", 3, 0.1)])
    assert [(r.site, r.native, r.compiled) for r in found] == [("b.py:1", 1, 0), ("a.py:1", 0, 2)]
    assert found[1].seconds == pytest.approx(0.2)


def test_the_page_has_lanes_for_recording_compiling_and_executing(report):
    """Each with bars that name cause and line; nothing is fetched."""
    text = report.to_html()
    for lane in ("record", "compile", "execute", "fallback"):
        assert f">{lane}</div>" in text
        assert f'fill="var(--{lane})"' in text
    assert text.count('fill="var(--record)"') == 2
    assert "2 operations recorded, up to" in text
    assert "no lowering &lt;yet&gt;" in text
    assert not re.search(r"(?:src|href)=\"(?!#)", text)
    assert "http" not in text


def test_ranges_that_the_program_names_are_a_lane(report):
    """In order with the other events, the outer under the inner; those from before the last reset are forgotten."""
    runs = [event for event in report.events if event.kind == "execute"]
    begin, end = runs[0].when, runs[-1].when
    lazy_core.events.add_ranges([("inner <1>", begin, begin + 0.6 * (end - begin)), ("outer", begin, end + 1), ("forgotten", 1.0, 2.0)])
    found = lazy_core.report()
    whens = [event.when for event in found.events]
    assert whens == sorted(whens)
    assert [event.cause for event in found.events if event.kind == "range"] == ["inner <1>", "outer"]
    text = found.to_html()
    assert text.count('fill="var(--range)"') == 2
    assert 0 < text.index("<title>outer, ") < text.index("<title>inner &lt;1&gt;, ")
    assert "outer" not in str(found), "ranges are for the page"


def test_every_link_of_the_page_leads_somewhere(report):
    """Causes lead to graphs, operands to definitions."""
    text = report.to_html()
    targets = set(re.findall(r'id="([^"]+)"', text))
    links = re.findall(r'href="#([^"]+)"', text)
    assert links
    assert set(links) <= targets


def test_an_empty_report_has_a_page_and_a_text():
    """Nothing happened yet."""
    empty = Report({"recorded": 0, "compiles": 0, "compile_seconds": 0.0, "fallbacks": 0}, (), {}, {})
    assert "Nothing happened yet" in empty.to_html()
    assert "no fallback" in str(empty)
    empty.show(Terminal())


def graph():
    """The text of a graph with a constant, two outputs of one operation, and an operation without operands."""
    x = values.from_host(np.ones((4, 3), np.float32))
    q, r = ops.qr(ops.mul(x, np.float32(2)), mode="reduced")
    i = ops.convert(ops.iota(dims=(4, 3), axis=0, dtype=np.dtype("int32")), dtype=np.dtype("float32"))
    return dump.graph_text((ops.add(ops.matmul(q, r), i).expr,))


def test_a_picture_shows_every_operation_below_its_operands():
    """One box a node, one line an operand."""
    text = graph()
    picture = drawing.draw(text)
    nodes = drawing._parse(text)
    assert picture.count("<rect") == len(nodes) == len(text.splitlines()) - 1
    assert picture.count("<path") == sum(len(set(n.operands)) for n in nodes)
    assert {n.title for n in nodes} >= {"buffer", "const(2.0)", "qr", "iota"}
    assert "iota(axis=0" in text
    below = {n.number: k for k, layer in enumerate(drawing._layers(nodes)) for n in layer}
    assert all(below[o] < below[n.number] for n in nodes for o in n.operands)


def test_boxes_of_a_layer_do_not_overlap():
    """Each has its own place."""
    layers = drawing._layers(drawing._parse(graph()))
    middle, width = drawing._places(layers)
    for layer in layers:
        spans = sorted((middle[n.number] - drawing._width(n) / 2, middle[n.number] + drawing._width(n) / 2) for n in layer)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))
        assert spans[0][0] >= 0
        assert spans[-1][1] <= width


def test_a_graph_too_large_to_read_has_no_picture():
    """Its page has the text."""
    x = values.from_host(np.ones(2, np.float32))
    for _ in range(drawing.MOST_NODES):
        x = ops.sin(x)
    text = dump.graph_text((x.expr,))
    assert drawing.draw(text) is None
    assert drawing.draw("") is None
    assert "<svg" not in page.render_graph(0, text, "")
