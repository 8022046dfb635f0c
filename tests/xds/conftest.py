"""Makes the modules of this folder importable by their own names: a package `xds` would hide that of xds-protos."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
