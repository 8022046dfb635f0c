"""Meshes of the tests use their own run directories, apart from those of the user of this machine.

A module that defines `files` has one mesh for all of its tests. Objects that a test writes into `test.yaml` are
removed after it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.mesh import running_mesh


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_mesh(request):
    async with running_mesh(request.module.files) as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def mesh(whole_mesh):
    yield whole_mesh
    if (whole_mesh.directory / "test.yaml").exists():
        await whole_mesh.edit({"test.yaml": None})
