"""Two revisions of weft on one cluster: pods of both call each other, namespaces move from one to the other and back
under load, and uninstall removes one revision or everything."""

import json
import re

import pytest
from tools.kube.process import Failed

from on_cluster.mesh import NAMESPACE, TEST, until
from on_cluster.traffic import Pods, deployment, logs, peer, service, strict

# It removes the second revision, and in the end everything.
pytestmark = pytest.mark.last

LABEL = "app.kubernetes.io/name=weft"


@pytest.fixture(scope="module")
def namespaces(mesh, canary):
    """A namespace of each revision."""
    old, new = mesh.namespace("old"), mesh.namespace("new", {"istio.io/rev": canary})
    yield old, new
    mesh.kubectl("delete", "namespace", old, new, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def pods(mesh, namespaces):
    """`client` of the old revision calls `echo`, a Deployment of the old, and `echo` of the new one."""
    old, new = namespaces
    urls = [f"http://echo.{namespace}/" for namespace in (old, new)]
    mesh.apply(
        *(strict(namespace) for namespace in namespaces),
        *(service(namespace, "echo", "echo") for namespace in namespaces),
        deployment(peer(old, "echo")),
        peer(new, "echo"),
    )
    mesh.rolled_out(old)
    mesh.wait(new, "pod/echo")
    # Created last, so that it counts no failures from before the others were ready.
    mesh.apply(peer(old, "client", *urls))
    mesh.wait(old, "pod/client")
    return Pods(mesh, client=(old, "client"), echo=(new, "echo"))


def drivers(mesh, namespace, app):
    """The CSI drivers of an app's pods."""
    path = 'jsonpath={.items[*].spec.volumes[?(@.name=="workload-socket")].csi.driver}'
    return set(mesh.kubectl("get", "pods", f"--namespace={namespace}", f"-l=app={app}", "-o", path).split())


def uses(mesh):
    shown = json.loads(re.search(r"\{.*\}", mesh.weft("upgrade", "-o", "json"), re.DOTALL)[0])
    assert {each["name"] for each in shown["revisions"]} == {"default", "canary"}
    return {each["namespace"]: (each["revision"], each["pods"]) for each in shown["namespaces"]}


def proxies(mesh, pods, revision):
    """The number of proxies that a revision's control plane serves."""
    path = "jsonpath={.items[*].status.podIP}"
    labels = f"app=istiod,istio.io/rev={revision}"
    found = mesh.kubectl("get", "pods", f"--namespace={NAMESPACE}", f"-l={labels}", "-o", path).split()
    return sum(pods.metrics(address)["weft_proxies"] for address in found)


def test_the_cluster_can_take_another_revision(mesh):
    said = mesh.weft("x", "precheck", "--revision", "another")
    assert "weft can be installed" in said


def test_pods_of_both_revisions_trust_each_other(mesh, namespaces, pods):
    old, new = namespaces
    assert drivers(mesh, old, "echo") == drivers(mesh, old, "client") == {"csi.weft.dev"}
    assert drivers(mesh, new, "echo") == {"canary.csi.weft.dev"}
    there = pods.fetch("client", f"http://echo.{new}/")
    back = pods.fetch("echo", f"http://echo.{old}/")
    assert (there["status"], back["status"]) == (200, 200)
    assert f"URI=spiffe://cluster.local/ns/{old}/sa/default" in json.loads(there["body"])["client"]
    assert f"URI=spiffe://cluster.local/ns/{new}/sa/default" in json.loads(back["body"])["client"]
    until(lambda: proxies(mesh, pods, "canary") == 1)  # those of the previous tests may still be terminating
    # Both revisions write the same content to shared objects: neither ever sees a change by the other.
    for revision in ("default", "canary"):
        assert "cannot be published" not in logs(mesh, NAMESPACE, f"app=istiod,istio.io/rev={revision}", since="1m")


def test_a_namespace_goes_to_the_new_revision_and_back_without_a_failed_request(mesh, namespaces, pods):
    old, new = namespaces
    assert uses(mesh)[old] == ("default", {"default": 2})
    assert uses(mesh)[new] == ("canary", {"canary": 1})
    with pods.undisturbed():
        assert f"{old} uses revision canary" in mesh.weft("upgrade", "--revision", "canary", "--move", old)
        until(lambda: drivers(mesh, old, "echo") == {"canary.csi.weft.dev"})
        assert uses(mesh)[old] == ("canary", {"canary": 1, "default": 1})
        said = mesh.weft("uninstall", "--revision", "canary", "--yes", check=False)
        assert "pods still use what is to be removed" in said
        assert f"{old} (1 pod)" in said
        assert f"{new} (1 pod)" in said
        mesh.weft("upgrade", "--revision", "default", "--move", old)
        until(lambda: drivers(mesh, old, "echo") == {"csi.weft.dev"})


def test_an_unused_revision_is_removed_and_the_other_stays(mesh, canary, namespaces, pods):
    old, new = namespaces
    with pods.undisturbed(but=f"http://echo.{new}/"):
        mesh.kubectl("delete", "namespace", new, "--wait")
        mesh.weft("uninstall", "--revision", canary, "--yes")
        assert everything(mesh, f"{LABEL},istio.io/rev={canary}") == []
    mesh.apply(peer(old, "late"))
    mesh.wait(old, "pod/late")
    drivers_known = ("get", "csinodes", "-o", "jsonpath={.items[*].spec.drivers[*].name}")
    until(lambda: "canary" not in mesh.kubectl(*drivers_known))


def everything(mesh, labels):
    """Names of all objects with these labels, of every kind that can be listed, once none of them is terminating."""

    def ended():
        names = listed(mesh, labels)
        assert not [name for name in names if name.startswith(("pod/", "replicaset", "endpointslice", "controller"))]
        return (names,)

    (names,) = until(ended)
    return names


def listed(mesh, labels):
    """Names of all objects with these labels now. Asserts that no kind was removed meanwhile: a removed kind is
    listed in discovery a moment longer than it is served."""
    kinds = mesh.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = [kind for kind in kinds if kind not in ("componentstatuses", "events", "events.events.k8s.io")]
    try:
        return mesh.kubectl("get", ",".join(kinds), "--all-namespaces", f"--selector={labels}", "-o", "name").split()
    except Failed as failure:
        assert "the server doesn't have a resource type" not in str(failure), failure
        assert "could not find the requested resource" not in str(failure), failure
        raise


def test_the_whole_installation_can_be_removed_and_installed_again(mesh):
    """The last of all tests on this cluster: it removes the mesh."""
    namespace = mesh.namespace("last")
    mesh.kubectl("delete", "namespace", f"--selector={TEST},kubernetes.io/metadata.name!={namespace}", "--wait")
    mesh.apply(peer(namespace, "stays"), strict(namespace))
    mesh.wait(namespace, "pod/stays")
    said = mesh.weft("uninstall", "--purge", "--yes", check=False)
    assert f"pods still use what is to be removed: {namespace} (1 pod)" in said
    mesh.kubectl("delete", "pod", f"--namespace={namespace}", "stays", "--wait")
    mesh.weft("uninstall", "--purge", "--yes")
    assert everything(mesh, LABEL) == [f"namespace/{NAMESPACE}"]
    assert "istio.io" not in mesh.kubectl("get", "customresourcedefinitions", "-o", "name")
    path = "jsonpath={.items[*].metadata.name}"
    for kind in ("configmaps", "secrets", "leases"):
        names = mesh.kubectl("get", kind, "--all-namespaces", "-o", path)
        assert not re.search(r"istio|weft", names), names
    find = ("find", "/run", "/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "-name", "*weft*")
    assert mesh.cluster.holder.run(*find).stdout == ""
    assert "weft is not installed on this cluster" in mesh.weft("uninstall", "--purge", "--yes", check=False)
    mesh.install()
    mesh.apply(peer(namespace, "again"))
    mesh.wait(namespace, "pod/again")
    mesh.kubectl("delete", "namespace", namespace, "--wait=false")
