"""Meshes that are broken on purpose, tests/broken: in each, the commands that a person in trouble types first say what is
wrong, and where. All of them run at once, in one mesh; docs/troubleshooting.md is written from the same files."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys

import pytest
import pytest_asyncio
from tools.troubleshooting import MESHES, broken

from e2e.mesh import eventually, running_mesh
from weft.local.status import Phase

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

IN_A_MESH = broken("mesh")
IN_FILES = broken("files")
NEVER_READY = {"absent", "falling", "inward"}
CALLS = """
import json, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None
ends = {"URLError: [Errno -": "name", "RemoteDisconnected": "closed", "ConnectionReset": "reset"}
opener = urllib.request.build_opener(Stay)
for url in sys.argv[1:]:
    try:
        end = str(opener.open(url, timeout=10).status)
    except urllib.error.HTTPError as error:
        end = str(error.code)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        end = next((word for begin, word in ends.items() if begin in said), said)
    print(json.dumps([url, end]))
"""


def files(control):
    found = {f"{each.name}.yaml": each.text for each in IN_A_MESH}
    return {"base.yaml": (MESHES / "base.yaml").read_text(), **found}


async def weft(command, directory):
    """All that it says, to either side."""
    words = shlex.split(command)
    assert words[0] == "weft"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft.cli", *words[1:]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=directory,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    return said.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_mesh():
    async with running_mesh(files, wait=False) as mesh:
        await eventually(lambda: settled(mesh), 90)
        yield mesh


def settled(mesh):
    """Whoever can be ready is; whoever cannot has said why; and everything has been looked at."""
    pods = [pod for each in mesh.engine.status().workloads for pod in each.pods]
    return (
        len(pods) > len(NEVER_READY)
        and all(pod.phase is Phase.READY or (pod.workload in NEVER_READY and pod.message) for pod in pods)
        and "127.0.0.1 only" in mesh.pod("inward").message
        and mesh.pod("falling").phase is Phase.BACK_OFF
        and not mesh.control.pending
        and any("WFT0511" in problem for problem in mesh.problems())
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(whole_mesh):
    """What a command says. Many type the same one; nothing changes, so it is asked once."""
    kept = {}

    async def ask(command):
        if command not in kept:
            kept[command] = await weft(command.replace("MESH", whole_mesh.engine.name), whole_mesh.directory)
        return kept[command]

    return ask


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(whole_mesh):
    """How calls really end, by caller and URL."""
    calls = {}
    for each in IN_A_MESH:
        for caller, url, _ in (line.split() for line in each.gets):
            calls.setdefault(caller, []).append(url)
    found = {}
    for caller, urls in calls.items():
        command = shlex.join(["weft", "exec", caller, "--", "python3", "-c", CALLS, *urls])
        for line in (await weft(command, whole_mesh.directory)).splitlines():
            url, end = json.loads(line)
            found[caller, url] = end
    return found


@pytest.mark.parametrize("case", IN_A_MESH, ids=lambda case: case.name)
async def test_what_is_typed_first_says_what_is_broken_and_where(case, said, ends):
    for caller, url, end in (line.split() for line in case.gets):
        assert ends[caller, url] == end
    for typed in case.typed:
        answer = await said(typed.command)
        for words in typed.words:
            assert case.pattern(words).search(answer), f"{typed.command}: no `{words}` in\n{answer}"


@pytest.mark.parametrize("case", IN_FILES, ids=lambda case: case.name)
async def test_what_is_only_written_is_judged_before_it_runs(case, tmp_path):
    shutil.copy(MESHES / "base.yaml", tmp_path)
    shutil.copy(MESHES / "files" / f"{case.name}.yaml", tmp_path)
    for typed in case.typed:
        answer = await weft(typed.command, tmp_path)
        for words in typed.words:
            assert case.pattern(words).search(answer), f"{typed.command}: no `{words}` in\n{answer}"


def test_there_are_as_many_as_were_promised():
    every = [each for kind in ("mesh", "files", "running", "kubernetes") for each in broken(kind)]
    assert len(every) >= 30
    assert len({each.name for each in every}) == len(every)
