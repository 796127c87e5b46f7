"""The pictures of the documentation, from real traces: `python tools/pictures.py [--check]` (needs every package installed).

A picture is of a program in a page: the first fence "```python" after the comment "<!-- picture NAME of EXPRESSION -->" runs, after the
page's fences before it, and the graph of the expression's tensor is drawn into docs/pictures/NAME.svg before anything is computed.
Operations are coloured by the library that recorded them ("of EXPRESSION by LIBRARY" if it is one).
`--check` writes nothing and fails where a picture is another one.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
MARK = re.compile(r"^<!-- picture (?P<name>[\w-]+) of (?P<tensor>.+?)(?: by (?P<library>\w+))? -->$")
COLOURS = {"NumPy": "#3b6fe0", "PyTorch": "#c0392b", "TensorFlow": "#e0762f"}
# Who recorded an operation, where a picture does not say that all are one library's: by what stands in its line, the first that fits.
LINES = (("TensorFlow", r"\btf\."), ("PyTorch", r"torch|model\("), ("NumPy", ""))
STYLE = """
text { font: 11px ui-monospace, monospace; text-anchor: middle; fill: #222; } .shape { font-size: 10px; opacity: .65; }
rect { fill: #fff; stroke: #888; } .edges path { fill: none; stroke: #999; } .key { text-anchor: start; font-weight: bold; }
"""


def programs(text: str) -> list[tuple[str, str, str | None, str]]:
    """The pictures that a page asks for: (name, tensor, library or None, the program up to it, with the page's line numbers)."""
    found, program, inside, wanted = [], [], False, None
    for line in text.splitlines():
        mark = MARK.match(line)
        if mark is not None:
            wanted = (mark["name"], mark["tensor"], mark["library"])
        if line.startswith("```"):
            if inside and wanted is not None:
                found.append((*wanted, "\n".join(program)))
                wanted = None
            inside = line == "```python"
            program.append("")
        else:
            program.append(line if inside else "")
    return found


def coloured(svg: str, library: str | None, lines: list[str]) -> str:
    """A drawing that stands alone, its operations coloured by library, with a key where there are several."""
    used: dict[str, str] = {}

    def colour(match: re.Match[str]) -> str:
        line = lines[int(match["line"]) - 1]
        name = library or next(name for name, pattern in LINES if re.search(pattern, line))
        tone = used[name] = COLOURS[name]
        return f'{match["head"]}{match["rest"]}<rect style="stroke:{tone};stroke-width:1.6"'

    svg = re.sub(r'(?P<head><g class="operation"><title>)(?P<rest>[^<]*:(?P<line>\d+)</title>)<rect', colour, svg)
    svg = svg.replace(f"{ROOT}{os.sep}", "")  # of whoever draws it
    width, height = (int(n) for n in re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())  # type: ignore[union-attr]
    keys = ""
    if len(used) > 1:
        height += 24
        for k, (name, tone) in enumerate(used.items()):
            keys += f'<text class="key" x="{12 + 90 * k}" y="{height - 8}" style="fill:{tone}">{name}</text>'
    body = svg.partition(">")[2].removesuffix("</svg>")
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return f"{start}<style>{STYLE}</style><rect width='100%' height='100%' style='fill:#fff;stroke:none'/>{body}{keys}</svg>\n"


def picture(page: Path, tensor: str, library: str | None, program: str) -> str:
    """Run a program and draw the graph of one of its tensors."""
    import lazy_core
    from lazy_core import drawing

    names: dict[str, Any] = {}
    with lazy_core.options(tier="compiled"):
        exec(compile(program, str(page), "exec"), names)
        drawn = drawing.draw(lazy_core.graph(eval(tensor, names)))
        assert drawn is not None, f"{page.name}: {tensor} has no graph that could be drawn"
        lazy_core.barrier()
    return coloured(drawn, library, page.read_text(encoding="utf-8").splitlines())


def made() -> dict[Path, str]:
    """Every picture of every page."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    asked = [(page, *each) for page in pages for each in programs(page.read_text(encoding="utf-8"))]
    return {PICTURES / f"{name}.svg": picture(page, *rest) for page, name, *rest in asked}


def main() -> int:
    """Write the pictures, or compare them."""
    os.environ.update(LAZY_CACHE_DIR="off")
    pictures = made()
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, text in pictures.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        stale += [path.name for path in PICTURES.glob("*.svg") if path not in pictures]
        print("stale:", ", ".join(stale) or "none")
        return int(bool(stale))
    PICTURES.mkdir(exist_ok=True)
    for path, text in pictures.items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
