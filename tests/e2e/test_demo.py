"""The demo as the README describes it, unattended."""

import os
import subprocess
import sys

import pytest


@pytest.mark.root
@pytest.mark.timeout(600)
def test_the_demo_shows_what_it_promises():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-m", "weft.cli", "demo", "--check"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("ok ")]
    assert len(rows) == 17, result.stdout
    assert "FAILED" not in result.stdout
