"""Lets the tests here import their models: as a package they would be `xds`, a name that xds-protos has taken."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
