"""`weft x precheck` on a real API server."""

from weft.cli.install.precheck import plan_of
from weft.install.values import values_of
from weft.kube.resource import NAMESPACES


def test_a_fit_cluster_ends_well_and_nothing_is_written(cluster_cli):
    ended = cluster_cli.done("x", "precheck")
    assert "Kubernetes v1.34.3: ok" in ended.stdout
    assert "weft can be installed" in ended.stderr
    assert cluster_cli.left() == set()


def test_an_obstacle_exits_with_1(cluster_cli):
    place = cluster_cli.server.make_namespace("precheck-cli")
    service = {"metadata": {"name": "istiod"}, "spec": {"ports": [{"port": 1}]}}
    cluster_cli.server.request("POST", f"/api/v1/namespaces/{place}/services", service)
    ended = cluster_cli("x", "precheck", "--set", f"namespace={place}")
    cluster_cli.server.request("DELETE", NAMESPACES.path(name=place))
    assert ended.returncode == 1
    assert f"Service {place}/istiod: error" in ended.stdout


def test_the_plan_is_what_would_be_installed():
    plan = plan_of(values_of({"namespace": "mesh", "image": "a/b:1", "node": {"kubeletRoot": "/k"}}))
    assert (plan.namespace, plan.image, plan.kubelet_root) == ("mesh", "a/b:1", "/k")
    assert any(each["kind"] == "DaemonSet" for each in plan.objects)
