"""The Python in README.md, the packages' READMEs and docs/ runs; each document in a process of its own.

A fence "```python" runs as part of its document's program, "```python numpy" as a program of its own under
`python -m lazy_numpy`. A fence "```text" or "```" is for reading only.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("packages/*/README.md"), *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def _programs(text):
    """The programs in a document: (module that runs it or None, source with the document's line numbers)."""
    together, programs = [], []
    for fence in FENCE.finditer(text):
        placed = "\n" * text.count("\n", 0, fence.start("body")) + fence["body"]
        match fence["info"].split():
            case ["python"]:
                # Line numbers stay the document's: pad with what the blocks before do not fill.
                filled = sum(part.count("\n") for part in together)
                together.append(placed[filled:])
            case ["python", module]:
                programs.append((f"lazy_{module}", placed))
    return ([(None, "".join(together))] if together else []) + programs


CASES = [
    pytest.param(document, module, source, id=f"{document.relative_to(ROOT)}{f' ({module})' if module else ''}")
    for document in DOCUMENTS
    for module, source in _programs(document.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("document", "module", "source"), CASES)
def test_python_in_a_document_runs(document, module, source, tmp_path):
    """A reader who copies the blocks of a document gets a program that runs."""
    script = tmp_path / f"{document.stem}.py"
    script.write_text(source, encoding="utf-8")
    command = [sys.executable, *(["-m", module] if module else []), str(script)]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_documents_blocks_keep_their_lines():
    """An error in a block names the document's own line."""
    text = "one\n```python\na = 1\n```\n\n```text\nno\n```\n```python\nb = 2\n```\n```python numpy\nc\n```\n"
    (plain, source), (module, other) = _programs(text)
    assert (plain, module) == (None, "lazy_numpy")
    assert [source.splitlines()[2], source.splitlines()[9], other.splitlines()[12]] == ["a = 1", "b = 2", "c"]


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(document):
    """No relative link of a document is dead."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_changelog_fragments_are_well_named():
    """Each fragment names its kind and says something, so that a release can be assembled."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import changelog
    finally:
        sys.path.pop(0)
    found = changelog.fragments(ROOT / "changelog.d")
    text = changelog.section("9.9.9", "2030-01-01", found)
    assert text.startswith("## 9.9.9 (2030-01-01)\n")
    assert all(path.read_text(encoding="utf-8").split()[0] in text for paths in found.values() for path in paths)
