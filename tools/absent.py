"""Fail if one of the named modules can be found: proof that a package's tests ran without another frontend's library."""

import importlib.util
import sys

found = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is not None]
if found:
    sys.exit(f"this environment must not hold {', '.join(found)}")
