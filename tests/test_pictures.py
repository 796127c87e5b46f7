"""The documentation's pictures are of what its programs record today."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

for library in ("lazy_torch", "lazy_numpy", "lazy_tf"):
    pytest.importorskip(library, reason="the programs in the pages use every library")
ROOT = Path(__file__).parents[1]


def test_pictures_are_up_to_date():
    """Remake them with `python tools/pictures.py`; in a process of its own, as numbers that varied before are fed, not baked."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "LAZY_CACHE_DIR": "off"}
    command = [sys.executable, str(ROOT / "tools" / "pictures.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_every_picture_is_shown():
    """No page names one that is missing, and none lies about."""
    shown = {
        name for page in ROOT.glob("docs/*.md") for name in re.findall(r"\]\(pictures/([\w-]+\.svg)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    assert shown
