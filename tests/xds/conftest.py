"""Lets the tests here import `conversation.py`: a package of their own would be called `xds`, as one of protobuf's is."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
