"""The extension is built by a command, once, and does without where it cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lazy_tf import __main__ as command
from lazy_tf import native


def compiler(folder: Path, body: str) -> str:
    """A stand-in for a compiler: a program that runs this Python with the arguments in `sys.argv`."""
    path = folder / "compiler.py"
    path.write_text(body)
    return f"{sys.executable} {path}"


def test_the_command_builds_into_a_folder_and_says_so(tmp_path, monkeypatch, capsys):
    """A line of progress on the error stream, the path on the other; the second time there is nothing to do."""
    monkeypatch.setenv("CXX", compiler(tmp_path, "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write('made')"))
    assert command.main(["build", "--into", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    made = Path(out.strip())
    assert made.read_text() == "made" and made.parent.parent == tmp_path / "out"
    assert "building its extension for TensorFlow" in err
    assert command.main(["build", "--into", str(tmp_path / "out")]) == 0
    assert capsys.readouterr() == (out, "")


def test_the_command_without_arguments_says_what_is_there(monkeypatch, capsys):
    assert command.main([]) == 0
    assert capsys.readouterr().out == f"binary: {native.find()}\n"
    monkeypatch.setattr(native, "find", lambda: None)
    assert command.main([]) == 0
    assert "run: python -m lazy_tf build" in capsys.readouterr().out


def test_the_command_explains_itself(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "build the extension for the TensorFlow that is installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "said"),
    [("import sys; sys.exit('no such header')", "no such header"), (None, "cannot be written to")],
    ids=["compiler", "folder"],
)
def test_a_build_that_fails_says_why(tmp_path, monkeypatch, capsys, body, said):
    """With the compiler's own words, or the name of the folder."""
    into = tmp_path / "out"
    if body is None:
        into.write_text("a file")
    monkeypatch.setenv("CXX", compiler(tmp_path, body or ""))
    assert command.main(["build", "--into", str(into)]) == 1
    assert said in capsys.readouterr().err


def test_without_a_compiler_the_device_works_through_ctypes_after_a_warning(tmp_path, monkeypatch):
    """The warning says how to accept that in silence."""
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LAZY_TF_BUILD_DIR", str(tmp_path))
    monkeypatch.delenv("LAZY_TF_EXTENSION", raising=False)
    with pytest.warns(RuntimeWarning, match=r"no C\+\+ compiler: install g\+\+, or set CXX.*LAZY_TF_EXTENSION=off"):
        assert native.extension.__wrapped__() is None
