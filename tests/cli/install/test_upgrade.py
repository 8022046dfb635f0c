"""`weft upgrade` on a real API server: a revision beside another, namespaces moved, and the list of both."""

import json
import time

import pytest

from cli.installing import Installed
from weft.kube.resource import DEPLOYMENTS, NAMESPACES, PODS

MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def two(own_api_server, weft):
    """A cluster with two revisions."""
    found = Installed(own_api_server, weft)
    found.clean()
    for each in own_api_server.request("GET", NAMESPACES.path())["items"]:  # other tests leave namespaces behind
        _unlabel(own_api_server, each["metadata"]["name"])
    found.done("install", "--no-wait", "--no-precheck")
    found.done("install", "--no-wait", "--no-precheck", "--revision", "b")
    yield found
    found.clean()


@pytest.fixture
def shop(two):
    """A namespace. Deleted namespaces never go away here, because no controller removes them; so the labels are
    removed."""
    name = two.server.make_namespace(f"shop-{time.monotonic_ns()}", {"istio-injection": "enabled"})
    yield name
    _unlabel(two.server, name)
    two.server.request("DELETE", NAMESPACES.path(name=name))


def _unlabel(server, name):
    labels = {"istio.io/rev": None, "istio-injection": None}
    server.request("PATCH", NAMESPACES.path(name=name), {"metadata": {"labels": labels}}, kind=MERGE)


def test_it_lists_which_namespace_uses_which_revision_and_the_next_commands(two, shop):
    ended = two.done("upgrade")
    row = next(line.split() for line in ended.stdout.splitlines() if line.startswith(shop))
    assert row == [shop, "default", "none"]
    assert "revision b: weft" in ended.stderr
    assert f"weft upgrade --revision b --move {shop}" in ended.stderr
    assert "no namespace uses revision b" in ended.stderr


def test_a_namespace_is_moved_and_the_old_revision_can_go(two, shop):
    ended = two.done("upgrade", "--revision", "b", "--move", shop)
    assert f"{shop} uses revision b" in ended.stderr
    assert "weft uninstall --revision default" in ended.stderr
    labels = two.server.request("GET", NAMESPACES.path(name=shop))["metadata"]["labels"]
    assert labels["istio.io/rev"] == "b"
    assert "istio-injection" not in labels


def metadata(two, namespace):
    found = two.server.request("GET", NAMESPACES.path(name=namespace))["metadata"]
    labels = {name: value for name, value in found["labels"].items() if name.startswith("istio")}
    return labels, found.get("annotations", {})


def test_moved_back_a_namespace_has_the_labels_from_before(two, shop):
    for revision in ("b", "b", "default"):
        two.done("upgrade", "--revision", revision, "--move", shop)
    assert metadata(two, shop) == ({"istio-injection": "enabled"}, {})


def test_labels_that_somebody_changed_after_the_move_are_not_overwritten_with_older_ones(two, shop):
    two.done("upgrade", "--revision", "b", "--move", shop)
    changed = {"metadata": {"labels": {"istio.io/rev": "default"}}}
    two.server.request("PATCH", NAMESPACES.path(name=shop), changed, kind=MERGE)
    two.done("upgrade", "--revision", "b", "--move", shop)
    two.done("upgrade", "--revision", "default", "--move", shop)
    assert metadata(two, shop) == ({"istio.io/rev": "default"}, {})


def test_a_namespace_whose_pods_are_injected_without_its_labels_is_moved_back_to_no_labels(two, shop):
    two.server.request(
        "PATCH", NAMESPACES.path(name=shop), {"metadata": {"labels": {"istio-injection": None}}}, kind=MERGE
    )
    volume = {"name": "workload-socket", "csi": {"driver": "csi.weft.dev"}}
    pod = {
        "metadata": {"name": "web", "namespace": shop, "labels": {"sidecar.istio.io/inject": "false"}},
        "spec": {"containers": [{"name": "app", "image": "x"}], "volumes": [volume]},
    }
    two.server.request("POST", PODS.path(shop), pod)
    two.done("upgrade", "--revision", "b", "--move", shop)
    two.server.request("DELETE", f"{PODS.path(shop, 'web')}?gracePeriodSeconds=0")
    assert metadata(two, shop)[0] == {"istio.io/rev": "b"}
    two.done("upgrade", "--revision", "default", "--move", shop)
    assert metadata(two, shop) == ({}, {})


def test_a_requested_revision_that_is_not_installed_is_reported(two, shop):
    labels = {"istio.io/rev": "gone", "istio-injection": None}
    two.server.request("PATCH", NAMESPACES.path(name=shop), {"metadata": {"labels": labels}}, kind=MERGE)
    ended = two.done("upgrade")
    row = next(line.split() for line in ended.stdout.splitlines() if line.startswith(shop))
    assert row == [shop, "no", "proxy", "none"]
    assert f"namespace {shop} requests revision gone, which is not installed: new pods get no proxy" in ended.stderr
    assert f"weft upgrade --revision b --move {shop}" in ended.stderr


def test_pods_that_do_not_restart_are_reported(two, shop):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    two.server.request("POST", DEPLOYMENTS.path(shop), {"metadata": {"name": "web"}, "spec": spec})
    ended = two("upgrade", "--revision", "b", "--move", shop, "--timeout", "3s")
    assert ended.returncode == 1
    assert f"not all pods are restarted yet: Deployment {shop}/web: 0 of 1 ready" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("--revision", "none", "--move", "default"), "there is no revision none", 1),
        (("--revision", "b", "--move", "not-there"), "there is no namespace not-there", 1),
        (("--move", "default"), "the target revision is missing", 2),
    ],
)
def test_a_namespace_that_cannot_be_moved_is_an_error(two, arguments, said, code):
    ended = two("upgrade", *arguments)
    assert ended.returncode == code
    assert said in ended.stderr


def test_a_new_revision_is_installed_beside(two):
    ended = two("upgrade", "--revision", "c", "--timeout", "1s")
    assert "created: Deployment istio-system/weft-control-c" in ended.stderr
    assert two.names(DEPLOYMENTS) == {"weft-control", "weft-control-b", "weft-control-c"}
    two.done("uninstall", "--revision", "c", "-y")


def test_a_program_can_read_it(two, shop):
    found = json.loads(two.done("upgrade", "-o", "json").stdout)
    assert {each["name"] for each in found["revisions"]} == {"default", "b"}
    assert {"namespace": shop, "revision": "default", "pods": {}} in found["namespaces"]
