from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def run_base(monkeypatch):
    """A base for run directories with a path short enough for Unix sockets."""
    base = Path(tempfile.mkdtemp(prefix="weft-", dir="/tmp"))
    base.chmod(0o755)
    monkeypatch.setenv("WEFT_RUN_DIR", str(base))
    yield base
    shutil.rmtree(base, ignore_errors=True)
