"""Meshes that are broken on purpose, tests/broken: in each, the commands that an operator types first show what is
wrong, and where. All of them run at once, in one mesh; docs/troubleshooting.md is generated from the same files."""

from __future__ import annotations

import shutil

import pytest
import pytest_asyncio
from tools.troubleshooting import MESHES, broken

from e2e import commands
from e2e.commands import missing, weft
from e2e.mesh import running_mesh
from eventually import eventually
from weft.local.status import PodPhase

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

IN_A_MESH = broken("mesh")
IN_FILES = broken("files")
NEVER_READY = {"absent", "falling", "inward"}


def files(control):
    found = {f"{each.name}.yaml": each.text for each in IN_A_MESH}
    return {"base.yaml": (MESHES / "base.yaml").read_text(), **found}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_mesh():
    async with running_mesh(files, wait=False) as mesh:
        await eventually(lambda: settled(mesh), limit=90)
        yield mesh


def settled(mesh):
    """Every pod is ready or has a reason why not, and every check has run."""
    pods = [pod for each in mesh.engine.status().workloads for pod in each.pods]
    return (
        len(pods) > len(NEVER_READY)
        and all(pod.phase is PodPhase.READY or (pod.workload in NEVER_READY and pod.message) for pod in pods)
        and "127.0.0.1 only" in mesh.pod("inward").message
        and mesh.pod("falling").phase is PodPhase.BACK_OFF
        and not mesh.control.pending
        and any("WFT0511" in problem for problem in mesh.problems())
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(whole_mesh):
    """The output of a command. Many cases use the same command and nothing changes, so each runs once."""
    kept = {}

    async def ask(command):
        if command not in kept:
            kept[command] = await weft(command.replace("MESH", whole_mesh.engine.name), whole_mesh.directory)
        return kept[command]

    return ask


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(whole_mesh):
    """How calls end, by caller and URL."""
    urls = {}
    for caller, url, _ in (line.split() for each in IN_A_MESH for line in each.gets):
        urls.setdefault(caller, []).append(url)
    return {caller: await commands.ends(caller, called, whole_mesh.directory) for caller, called in urls.items()}


@pytest.mark.parametrize("case", IN_A_MESH, ids=lambda case: case.name)
async def test_the_first_commands_of_an_operator_show_what_is_broken_and_where(case, said, ends):
    for caller, url, end in (line.split() for line in case.gets):
        assert ends[caller][url] == end
    assert not (wrong := missing(case, {typed.command: await said(typed.command) for typed in case.typed})), wrong


@pytest.mark.parametrize("case", IN_FILES, ids=lambda case: case.name)
async def test_files_are_checked_before_the_mesh_runs(case, tmp_path):
    for path in (MESHES / "base.yaml", MESHES / "files" / f"{case.name}.yaml"):
        shutil.copy(path, tmp_path)
    assert not (wrong := missing(case, {each.command: await weft(each.command, tmp_path) for each in case.typed})), (
        wrong
    )
