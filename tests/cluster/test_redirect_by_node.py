"""Pods without init containers that may change the network: the node's agent sets up their redirect, and pod security
`restricted` lets them in."""

import json

import pytest

from cluster import apps
from cluster.admission import containers, injected_by, plain_pod, refusal, tried
from cluster.apps import SERVE, caller_of, fetch, fetched, get, process, python, rules
from cluster.mesh import NAMESPACE, until

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def namespace(mesh, canary):
    name = mesh.namespace("restricted", {**RESTRICTED, "istio.io/rev": canary})
    annotations = {"traffic.sidecar.istio.io/excludeInboundPorts": "9090"}
    outside = {"sidecar.istio.io/inject": "false"}
    mesh.cluster.apply(
        apps.strict(name),
        apps.pod(name, "web", python("app", SERVE, "8080", "9090"), annotations=annotations),
        apps.service(name, "web", ("http", 80, 8080), ("tcp-past-the-proxy", 9090, 9090)),
        apps.pod(name, "caller", python("app", SERVE, "8080")),
        apps.pod(name, "outsider", python("app", SERVE, "8080"), labels=outside),
    )
    mesh.wait(name, "pod/web")
    mesh.wait(name, "pod/caller")
    mesh.wait(name, "pod/outsider")
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def restricted_pod():
    pod = plain_pod()
    pod["spec"]["containers"] = [python("app", SERVE, "8080")]
    return pod


def test_a_restricted_namespace_refuses_the_init_container_by_its_name(mesh):
    name = mesh.namespace("refused", {**RESTRICTED, "istio-injection": "enabled"})
    until(lambda: mesh.cluster.api.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts")["items"])
    said = refusal(mesh.cluster, name, restricted_pod())
    assert 'violates PodSecurity "restricted' in said
    assert 'container "istio-init" must not include "NET_ADMIN", "NET_RAW"' in said
    assert "istio-proxy" not in said and '"app"' not in said
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def test_a_restricted_namespace_lets_a_pod_in_whose_node_redirects(mesh, namespace, canary):
    pod = tried(mesh.cluster, namespace, restricted_pod())
    assert injected_by(pod) == canary
    found = containers(pod)
    assert "istio-init" not in found
    assert found["istio-validation"]["args"][:3] == ["redirect", "-p", "15001"]
    for each in found.values():
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_agent_has_put_the_redirect_into_the_pods_network(cluster, namespace):
    found = rules(cluster, get(cluster, "pod", namespace, "web"))
    inbound = [line for line in found if line.startswith("-A ISTIO_INBOUND")]
    assert any("-j ISTIO_IN_REDIRECT" in line for line in inbound)
    assert any("--dport 9090" in line and "-j RETURN" in line for line in inbound)
    assert any("-j ISTIO_REDIRECT" in line for line in found)
    assert not [line for line in rules(cluster, get(cluster, "pod", namespace, "outsider")) if "ISTIO" in line]


def test_nothing_in_the_pod_has_any_capability(cluster, namespace):
    pod = get(cluster, "pod", namespace, "web")
    for container in ("app", "istio-proxy"):
        text = cluster.holder.run("cat", f"/proc/{process(cluster, pod, container)}/status").stdout
        found = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert {int(found[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}


def test_its_traffic_is_intercepted_and_mutual_tls(cluster, namespace):
    said = fetched(cluster, namespace, "caller", f"http://web.{namespace}/")
    assert caller_of(said) == f"spiffe://cluster.local/ns/{namespace}/sa/default"
    plain, past = fetch(cluster, namespace, "outsider", f"http://web.{namespace}/", f"http://web.{namespace}:9090/")
    assert plain[0] == 0
    assert past[0] == 200 and caller_of(past[1]) == ""


def test_a_pod_waits_for_an_agent_that_is_away_and_says_so(mesh, cluster, namespace, canary):
    away = {"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": "true"}}}}}
    back = {"spec": {"template": {"spec": {"nodeSelector": {"example.com/nowhere": None}}}}}
    agents = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/weft-node-{canary}"

    def told():
        events = get(cluster, "events", namespace)
        return [each["message"] for each in events if each["involvedObject"]["name"] == "patient"]

    cluster.api.request("PATCH", agents, away, kind="application/strategic-merge-patch+json")
    try:
        until(lambda: not get(cluster, "pods", NAMESPACE, selector=f"app=weft-node,istio.io/rev={canary}"))
        cluster.apply(apps.pod(namespace, "patient", python("app", SERVE, "8080")))
        driver = f"{canary}.csi.weft.dev"
        until(lambda: [each for each in told() if "MountVolume" in each and driver in each])
        pod = get(cluster, "pod", namespace, "patient")
        assert all("running" not in each["state"] for each in pod["status"]["initContainerStatuses"])
        # What runs already goes on without it.
        assert fetched(cluster, namespace, "caller", f"http://web.{namespace}/")
    finally:
        cluster.api.request("PATCH", agents, back, kind="application/strategic-merge-patch+json")
    mesh.wait(namespace, "pod/patient")
    assert caller_of(fetched(cluster, namespace, "patient", f"http://web.{namespace}/"))
    assert json.dumps(told()).count("istio-validation")
