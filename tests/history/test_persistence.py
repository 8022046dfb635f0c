"""A restarted control plane restores the history of earlier runs."""

import json
import stat

import pytest

from model.builders import instance
from weft.api.document import Change
from weft.control.plane import ControlPlane
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.files.documents import read_documents
from weft.history.journal_lock import JournalTaken
from weft.history.persistence import Memory
from weft.inspect.attach import attach_debug
from weft.inspect.stage import Stage
from weft.model.names import ObjectKey

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


async def test_changes_while_no_control_plane_ran_are_a_separate_moment(started):
    first = started()
    first.apply(changes(MESH + "---" + ROUTE))
    await first.close()
    second = started()
    # The command of a workload is not stored, so this is no change.
    second.apply(changes(MESH.replace("serve", "serve-more")))
    (missed,) = second.history.moments()
    assert [(str(edit.key), bool(edit.before), bool(edit.after)) for edit in missed.edits] == [
        ("VirtualService shop/web", True, False)
    ]
    assert (status(second, 0), status(second, 1)) == (418, 503)


DENIED = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: shop}
spec: {}
"""
CALLED = MESH.replace("name: shell", "name: door")  # the caller is a pod


def arrive(plane, *names):
    """Add pods one after another, each when its process runs and again when it is ready."""
    for number, name in enumerate(names, start=2):
        for ready in (False, True):
            pod = instance(f"{name}-0", name, address=f"10.244.0.{number}", meshed=True, workload=name, ready=ready)
            plane.put(ObjectKey("Pod", "shop", f"{name}-0"), (pod,))


async def asked(plane, page, **question):
    answer = await attach_debug(plane).answer(page, {"question": json.dumps(question)})
    return json.loads(answer.body)


@pytest.fixture
async def again(started):
    """The second run of a mesh in which a policy denied everything, until it was removed between the runs."""
    first = started()
    first.apply(changes(CALLED + "---" + DENIED))
    arrive(first, "shell", "web")
    await first.close()
    second = started()
    second.apply(changes(CALLED))
    arrive(second, "shell", "web")
    return second


CALL = {"caller": "shell", "to": "http://web/"}


async def test_moments_of_an_earlier_run_use_the_current_pods(again):
    def verdicts(said):
        return [each["verdict"]["status"] for each in said["explanation"]["outcomes"]]

    assert verdicts(await asked(again, "explain", **CALL, when="@-1")) == [403]
    assert verdicts(await asked(again, "explain", **CALL, when="@1")) != [403]
    changed = (await asked(again, "diff", before="@-1"))["difference"]
    assert [each["object"]["name"] for each in changed["objects"]] == ["nobody"]
    assert {each["because"] for each in changed["requests"]} == {"AuthorizationPolicy shop/nobody (mesh.yaml:17)"}
    assert changed["tried"] == len(changed["requests"]) == 3


async def test_a_change_between_two_runs_is_the_cause_and_not_the_start_of_pods(again):
    found = await asked(again, "bisect", **CALL)
    assert found["moment"]["number"] == 1 and found["before"][0].startswith("denied 403"), found
    # The result is the same if the calling pod was removed, and is added again after another change.
    again.put(ObjectKey("Pod", "shop", "shell-0"), ())
    again.apply(changes(ROUTE.replace("name: web", "name: other").replace("[web]", "[other]")))
    arrive(again, "shell")
    found = await asked(again, "bisect", **CALL)
    assert found["moment"]["number"] == 1, found


async def test_the_pods_of_a_run_without_changes_exist_from_its_start(started):
    for _ in range(2):
        plane = started()
        plane.apply(changes(CALLED))
        arrive(plane, "shell", "web")
        await plane.close()
    said = await asked(plane, "explain", **CALL, when="@0")
    assert said["explanation"]["outcomes"][0]["verdict"]["kind"] == "delivered"
    found = await asked(plane, "bisect", **CALL)
    assert (found["moment"], found["since"]) == (None, plane.history.begun)


async def test_a_pod_was_not_there_before_its_workload(again):
    late = CALLED.split("---")[1].replace("name: web", "name: late")
    again.apply(changes(late))
    arrive(again, "late")
    assert (
        "no workload or pod `late`" in (await asked(again, "explain", **{**CALL, "caller": "late"}, when="@0"))["what"]
    )
    found = await asked(again, "bisect", **{**CALL, "caller": "late"})
    assert found["moment"] is None and found["since"] > again.history.moments()[0].at


async def test_without_a_memory_nothing_is_gathered_for_one():
    plane = ControlPlane()
    plane.apply(changes(MESH))
    plane.apply(changes(ROUTE))
    assert plane._intake.contents.changes() == ()
    await plane.close()


async def test_a_second_control_plane_with_the_same_directory_does_not_start(started):
    first = started()
    with pytest.raises(JournalTaken):
        started()
    await first.close()
    started()
