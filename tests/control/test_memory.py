"""A control plane that is started again remembers what was before it, and shows it as it was."""

import stat

import pytest

from weft.api.document import Change
from weft.control.journal_lock import Taken
from weft.control.memory import Memory
from weft.control.plane import ControlPlane
from weft.control.stage import Stage
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.files.documents import read_documents

MESH = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.7, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: shop}
spec: {command: [serve, --password=s3cr3t], env: {TOKEN: s3cr3t}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: shell, namespace: shop}
spec: {address: 192.0.2.9, labels: {app: shell}, serviceAccount: shell}
"""
ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{directResponse: {status: 418}}]}
"""


def changes(text):
    return [Change(each.key, each) for each in read_documents(text.encode(), "mesh.yaml").documents]


@pytest.fixture
async def started(tmp_path):
    made = []

    def start():
        plane = ControlPlane(memory=Memory(tmp_path))
        made.append(plane)
        return plane

    yield start
    for each in made:
        await each.close()


def status(plane, number):
    stage = Stage(plane.history.mesh_at(number))
    return explain(Request("web", caller=stage.find("shell")), stage).verdict.status


async def test_another_run_sees_what_changed_in_the_last(started, tmp_path):
    first = started()
    first.apply(changes(MESH))
    first.apply(changes(ROUTE))
    first.apply(changes(ROUTE.replace("418", "451")))
    digests = [each.digest for each in first.history.moments()]
    await first.close()
    second = started()
    second.apply(changes(MESH + "---" + ROUTE.replace("418", "451")))
    history = second.history
    assert [(each.number, each.digest) for each in history.moments()] == [(1, digests[0]), (2, digests[1])]
    assert (history.first_digest, history.begun) == (first.history.first_digest, first.history.begun)
    assert [status(second, number) for number in (0, 1, 2)] == [503, 418, 451]
    second.apply([Change(changes(ROUTE)[0].key, None)])
    assert history.latest == 3
    assert history.number_of(digests[0]) == 1
    kept = (tmp_path / "history.jsonl").read_text()
    assert "VirtualService" in kept and "s3cr3t" not in kept
    assert stat.S_IMODE((tmp_path / "history.jsonl").stat().st_mode) == 0o600


async def test_what_changed_while_none_ran_is_a_moment_of_its_own(started):
    first = started()
    first.apply(changes(MESH + "---" + ROUTE))
    await first.close()
    second = started()
    second.apply(changes(MESH.replace("serve", "serve-more")))  # what a process is given is not kept, and no change
    (missed,) = second.history.moments()
    assert [(str(edit.key), bool(edit.before), bool(edit.after)) for edit in missed.edits] == [
        ("VirtualService shop/web", True, False)
    ]
    assert (status(second, 0), status(second, 1)) == (418, 503)


async def test_without_a_memory_nothing_is_gathered_for_one():
    plane = ControlPlane()
    plane.apply(changes(MESH))
    plane.apply(changes(ROUTE))
    assert plane._intake.contents.changes() == ()
    await plane.close()


async def test_a_second_one_with_the_same_directory_does_not_start(started):
    first = started()
    with pytest.raises(Taken):
        started()
    await first.close()
    started()
