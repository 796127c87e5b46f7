"""Move the fragments of changelog.d/ into CHANGELOG.md: `python tools/changelog.py VERSION [--date YYYY-MM-DD] [--draft]`."""

import argparse
import datetime
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("added", "changed", "fixed", "removed")
MARK = "<!-- releases -->\n"


def fragments(folder: Path) -> dict[str, list[Path]]:
    """The fragments by kind, in order of name.

    Raises:
        ValueError: a file is not called NAME.KIND.md, or is empty.
    """
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.iterdir()):
        if path.name == "README.md":
            continue
        parts = path.name.split(".")
        if len(parts) != 3 or parts[1] not in KINDS or parts[2] != "md":
            raise ValueError(f"{path.name} should be called NAME.KIND.md with KIND one of {', '.join(KINDS)}")
        if not path.read_text(encoding="utf-8").strip():
            raise ValueError(f"{path.name} is empty; say what changed, for users")
        found[parts[1]].append(path)
    return found


def section(version: str, date: str, found: dict[str, list[Path]]) -> str:
    """The text of one release."""
    lines = [f"## {version} ({date})", ""]
    for kind, paths in found.items():
        if paths:
            lines += [f"### {kind.capitalize()}", ""]
            lines += ["- " + "\n  ".join(path.read_text(encoding="utf-8").strip().splitlines()) for path in paths]
            lines.append("")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the section, remove the fragments; a draft only prints it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--draft", action="store_true", help="print what would be written, change nothing")
    args = parser.parse_args()
    try:
        found = fragments(ROOT / "changelog.d")
    except ValueError as error:
        sys.exit(f"changelog: {error}")
    text = section(args.version, args.date, found)
    if args.draft:
        print(text)
        return
    target = ROOT / "CHANGELOG.md"
    before = target.read_text(encoding="utf-8")
    target.write_text(before.replace(MARK, f"{MARK}\n{text}", 1), encoding="utf-8")
    for paths in found.values():
        for path in paths:
            path.unlink()


if __name__ == "__main__":
    main()
