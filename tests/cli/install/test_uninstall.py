"""`weft uninstall` on a real API server."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from tools.kube.api_server import RequestFailed

from weft.kube.gateway_deployments import objects, ports_of
from weft.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, DAEMON_SETS, DEPLOYMENTS, MUTATING_WEBHOOKS, PODS
from weft.model.gateway_api import GATEWAY_NAME, Listener, StandardGateway

SECRET = "/api/v1/namespaces/istio-system/secrets"


@pytest.fixture
def installed(cluster_cli):
    cluster_cli.done("install", "--no-wait", "--no-precheck")
    return cluster_cli


@pytest.fixture
def root(installed):
    with contextlib.suppress(RequestFailed):
        installed.server.request("POST", SECRET, {"metadata": {"name": "istio-ca-secret"}})
    return f"{SECRET}/istio-ca-secret"


def test_one_revision_is_removed_and_the_other_is_kept(installed):
    installed.done("install", "--no-wait", "--no-precheck", "--revision", "a")
    installed.done("uninstall", "-y")
    assert installed.names(DEPLOYMENTS) == {"weft-control-a"}
    assert installed.names(MUTATING_WEBHOOKS) == {"istio-sidecar-injector-a"}


def test_the_claims_of_a_removed_revision_on_its_roots_are_removed(installed):
    installed.done("install", "--no-wait", "--no-precheck", "--revision", "a")
    place = "/api/v1/namespaces/default/configmaps"
    claims = {"roots.weft.dev/istio-system.default": "1", "roots.weft.dev/istio-system.a": "2", "other": "3"}
    installed.server.request("POST", place, {"metadata": {"name": "istio-ca-root-cert", "annotations": claims}})
    try:
        installed.done("uninstall", "-y", "--revision", "a")
        found = installed.server.request("GET", f"{place}/istio-ca-root-cert")["metadata"]["annotations"]
        assert found == {"roots.weft.dev/istio-system.default": "1", "other": "3"}
    finally:
        installed.server.request("DELETE", f"{place}/istio-ca-root-cert")


def test_the_webhooks_go_first(installed):
    said = installed.done("uninstall", "-y").stderr.splitlines()
    removed = [line for line in said if line.startswith("removed")]
    assert ["Webhook" in line for line in removed] == [True, True] + [False] * (len(removed) - 2)
    assert installed.left() == set()


def test_the_kinds_and_the_root_stay(installed, root):
    said = installed.done("uninstall", "-y").stderr
    assert "weft uninstall --purge" in said
    assert "directories of the agent" not in said  # this cluster has no nodes
    assert not installed.gone(root)
    assert len(installed.names(CUSTOM_RESOURCE_DEFINITIONS)) == 10


def test_purge_leaves_nothing_but_the_namespace(installed, root):
    installed.done("install", "--no-wait", "--no-precheck", "--revision", "a")
    place = "/api/v1/namespaces/default/configmaps"
    installed.server.request("POST", place, {"metadata": {"name": "istio-ca-root-cert"}})
    lease = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases"
    installed.server.request("POST", lease, {"metadata": {"name": "weft-leader-a"}})
    said = installed.done("uninstall", "--purge", "-y").stderr
    assert "kubectl delete namespace istio-system" in said
    assert installed.left() == set()
    assert all(installed.gone(path) for path in (root, f"{place}/istio-ca-root-cert", f"{lease}/weft-leader-a"))
    installed.wait_until(lambda: not installed.names(CUSTOM_RESOURCE_DEFINITIONS))
    assert installed("uninstall", "--purge", "-y").returncode == 1


def test_pods_that_live_by_it_keep_it(installed):
    volume = {"name": "workload-socket", "csi": {"driver": "csi.weft.dev"}}
    pod = {
        "metadata": {"name": "uses-it", "namespace": "default", "labels": {"sidecar.istio.io/inject": "false"}},
        "spec": {"containers": [{"name": "app", "image": "x"}], "volumes": [volume]},
    }
    installed.server.request("POST", PODS.path("default"), pod)
    try:
        ended = installed("uninstall", "-y")
        assert ended.returncode == 1
        assert "default (1 pod)" in ended.stderr
        assert installed.names(DEPLOYMENTS) == {"weft-control"}
        installed.done("uninstall", "-y", "--force")
    finally:
        installed.server.request("DELETE", f"{PODS.path('default', 'uses-it')}?gracePeriodSeconds=0")
    assert installed.left() == set()


def gateway_of(revision, name, namespace="default"):
    """Create the objects that a control plane creates for a Gateway, and a pod of them."""
    gateway = StandardGateway(name, namespace, "weft", (Listener("a", 80, "HTTP"),))
    volume = {"name": "workload-socket", "csi": {"driver": "csi.weft.dev"}}
    labels = {"sidecar.istio.io/inject": "false", GATEWAY_NAME: name}
    pod = {
        "metadata": {"name": f"{name}-0", "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "istio-proxy", "image": "x"}], "volumes": [volume]},
    }
    made = objects(gateway, ports_of(gateway, ()), "u", service_type="ClusterIP", revision=revision)
    return [*((each.path(namespace), manifest) for each, manifest in made.items()), (PODS.path(namespace), pod)]


def test_objects_created_for_gateways_are_removed_and_do_not_block_the_removal(installed):
    written = [*gateway_of("default", "edge"), *gateway_of("canary", "other")[:-1]]
    for path, manifest in written:
        installed.server.request("POST", path, manifest)
    places = [f"{path}/{manifest['metadata']['name']}" for path, manifest in written]
    own, foreign = places[:4], places[4:]

    def end_pod():  # no kubelet is there to end it
        installed.wait_until(lambda: all(map(installed.gone, own[:3])))
        assert not installed.gone(f"{DAEMON_SETS.path('istio-system', 'weft-node')}")  # pods cannot end without it
        assert installed.gone(f"{DEPLOYMENTS.path('istio-system', 'weft-control')}")  # so nothing creates the pod again
        installed.server.request("DELETE", f"{own[3]}?gracePeriodSeconds=0")

    try:
        with ThreadPoolExecutor() as pool:
            ending = pool.submit(end_pod)
            said = installed.done("uninstall", "-y").stderr
            ending.result()
        assert {f"removed: {kind} default/edge-weft" for kind in ("Deployment", "Service", "ServiceAccount")} <= set(
            said.splitlines()
        )
        assert all(map(installed.gone, own))
        assert not any(map(installed.gone, foreign))
        assert installed.left() == set()
    finally:
        for place in foreign:
            installed.server.request("DELETE", place)


def test_without_consent_nothing_is_removed(installed):
    ended = installed("uninstall", stdin=-3)  # /dev/null
    assert ended.returncode == 2
    assert installed.names(DEPLOYMENTS) == {"weft-control"}


@pytest.mark.parametrize("purge", ((), ("--purge",)))
def test_a_dry_run_lists_the_objects_and_removes_nothing(installed, purge):
    before = installed.left()
    ended = installed.done("uninstall", "--dry-run", *purge)
    listed = ended.stdout.splitlines()
    assert "directory /run/weft/default of each node" in listed
    assert "Deployment istio-system/weft-control" in listed and len(listed) == len(set(listed))
    assert any(line.startswith("CustomResourceDefinition ") for line in listed) is bool(purge)
    assert ended.stderr.endswith("nothing was removed\n") and installed.left() == before


def test_an_unknown_revision_is_an_error_that_lists_the_installed_ones(installed):
    ended = installed("uninstall", "-y", "--revision", "b")
    assert ended.returncode == 1
    assert "there is no revision b" in ended.stderr
    assert "installed: default" in ended.stderr
