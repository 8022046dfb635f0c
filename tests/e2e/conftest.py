"""Meshes of the tests keep their run directories apart from those of the person at this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def run_base():
    base = Path(tempfile.mkdtemp(prefix="weft-", dir="/tmp"))
    base.chmod(0o755)
    before = os.environ.get("WEFT_RUN_DIR")
    os.environ["WEFT_RUN_DIR"] = str(base)
    yield base
    if before is None:
        del os.environ["WEFT_RUN_DIR"]
    else:
        os.environ["WEFT_RUN_DIR"] = before
    shutil.rmtree(base, ignore_errors=True)
