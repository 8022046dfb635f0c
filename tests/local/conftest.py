from __future__ import annotations

import os
import shutil
import tempfile
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

import pytest

from weft.netns import links, namespace


@pytest.fixture
def run_base(monkeypatch):
    """A base for run directories with a path short enough for Unix sockets."""
    base = Path(tempfile.mkdtemp(prefix="weft-", dir="/tmp"))
    base.chmod(0o755)
    monkeypatch.setenv("WEFT_RUN_DIR", str(base))
    yield base
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def bridge():
    made = namespace.make(f"wt-pod-{os.urandom(3).hex()}.mesh")
    bridge = links.Bridge(made, IPv4Interface("10.244.0.1/16"), IPv6Interface("fd00:10:244::1/64"))
    links.make_bridge(bridge)
    yield bridge
    namespace.delete(made)
