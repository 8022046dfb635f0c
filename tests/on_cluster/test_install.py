"""weft on a real cluster: installed, healthy, and protected when a node is drained."""

import json

from tools.kube.api_server import RequestFailed

from on_cluster.admission import replicas
from on_cluster.mesh import NAMESPACE, until


def test_the_installed_components_run(mesh):
    ready = mesh.kubectl(
        "get", "pods", f"--namespace={NAMESPACE}", "-o", "jsonpath={.items[*].status.containerStatuses[*].ready}"
    )
    assert set(ready.split()) == {"true"}


def test_installing_again_changes_nothing(mesh):
    assert "26 unchanged" in mesh.install()


def test_draining_a_node_evicts_one_replica_of_the_control_plane_but_not_the_last(mesh):
    """As `kubectl drain` does: by evictions, which the disruption budget allows or blocks."""
    until(lambda: allowed(mesh) == 1)
    first, last = replicas(mesh.cluster)
    assert evict(mesh, first) == (201, "")
    code, said = evict(mesh, last)
    assert code == 429 and "would violate the pod's disruption budget" in said
    # Once the first has a successor, the last may be evicted, too.
    until(lambda: first not in (now := replicas(mesh.cluster)) and len(now) == 2)
    until(lambda: allowed(mesh) == 1)
    assert last in replicas(mesh.cluster)


def allowed(mesh):
    budget = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/weft-control"
    return mesh.cluster.api.request("GET", budget)["status"]["disruptionsAllowed"]


def evict(mesh, pod):
    """The status of the API server's response, and its message on failure."""
    wanted = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    try:
        mesh.cluster.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", wanted)
    except RequestFailed as failed:
        return failed.status, json.loads(str(failed).partition(": ")[2])["message"]
    return 201, ""
