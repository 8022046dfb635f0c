"""Lets the tests here use the hand-made Envoy resources of `tests/xds`, which cannot be a package (see there)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "xds"))
