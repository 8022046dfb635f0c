import json

import pytest

from inject.pods import container, injected, names, pod, variables
from inject.test_patch import bootstrap, status
from weft.inject.annotations import InjectionRefused
from weft.inject.settings import InjectionSettings

# As Istio's gateway chart writes it.
CHART = {
    "name": "istio-proxy",
    "image": "auto",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    },
    "ports": [{"containerPort": 15090, "name": "http-envoy-prom", "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
}
TEMPLATE = {"inject.istio.io/templates": "gateway"}
LOW_PORTS = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}


def gateway(annotations=TEMPLATE, containers=(CHART,), **more):
    labels = {"app": "edge", "istio": "ingress", "sidecar.istio.io/inject": "true"}
    return pod(labels=labels, annotations=dict(annotations), containers=list(containers), **more)


@pytest.mark.parametrize("native", [True, False])
def test_the_gateways_own_container_is_completed_and_nothing_else_is_added(native):
    result = injected(gateway(), native=native)
    assert names(result) == ["istio-proxy"] and names(result, "initContainers") == []
    proxy = container(result)
    assert (proxy["image"], proxy["command"]) == (InjectionSettings().image, ["envoy"])
    assert proxy["resources"]["requests"] == {"cpu": "100m", "memory": "128Mi"}
    assert proxy["securityContext"]["runAsUser"] == 1337 and proxy["securityContext"]["runAsNonRoot"] is True
    assert "restartPolicy" not in proxy and "postStart" not in proxy["lifecycle"]
    assert proxy["lifecycle"]["preStop"] == {"exec": {"command": ["weft", "drain", "--gateway", "5s"]}}
    assert proxy["readinessProbe"]["httpGet"]["port"] == 15021
    assert (status(result)["containers"], status(result)["initContainers"]) == (["istio-proxy"], None)
    assert result["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "istio-proxy"


def test_a_gateways_node_type_is_router():
    result = injected(gateway())
    assert bootstrap(result)["node"]["id"].startswith("router~")
    assert variables(result)["ISTIO_META_INTERCEPTION_MODE"] == "NONE"


def test_a_gateway_has_no_label_for_mesh_tls():
    labels = injected(gateway())["metadata"]["labels"]
    assert "security.istio.io/tlsMode" not in labels
    assert labels["service.istio.io/canonical-name"] == "edge"


def test_low_ports_are_allowed_unless_the_pod_sets_the_sysctl():
    assert injected(gateway())["spec"]["securityContext"] == {"sysctls": [LOW_PORTS]}
    written = {"sysctls": [{**LOW_PORTS, "value": "80"}], "fsGroup": 1}
    assert injected(gateway(securityContext=written))["spec"]["securityContext"] == written
    other = {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}
    assert injected(gateway(securityContext=other))["spec"]["securityContext"]["sysctls"][1] == LOW_PORTS
    assert "securityContext" not in injected(pod())["spec"]


def test_doing_it_again_changes_nothing():
    once = injected(gateway())
    assert injected(once) == once


def test_a_container_beside_the_gateway_stays_as_it_is():
    probed = {"name": "log", "image": "log:1", "readinessProbe": {"httpGet": {"port": 80, "path": "/"}}}
    result = injected(gateway(containers=[CHART, probed]))
    assert container(result, "log")["readinessProbe"] == probed["readinessProbe"]
    assert "lifecycle" not in container(result, "log")


def test_the_template_sidecar_is_what_every_pod_gets():
    said = pod(annotations={"inject.istio.io/templates": "sidecar"})
    assert container(injected(said))["args"] == container(injected(pod()))["args"]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (gateway({"inject.istio.io/templates": "grpc-agent"}), "unknown template grpc-agent"),
        (gateway({"inject.istio.io/templates": "sidecar,gateway"}), "a pod can have only one template"),
        (gateway(containers=[{"name": "web", "image": "web:1"}]), "a gateway needs a container named istio-proxy"),
        (gateway({}), "no application container"),
        (gateway(containers=[{**CHART, "securityContext": {"runAsUser": 0}}]), "the proxy cannot run as user 0"),
    ],
)
def test_rejects_an_invalid_gateway(wanted, why):
    with pytest.raises(InjectionRefused, match=why):
        injected(wanted)


def test_the_node_agent_and_the_control_plane_know_it_by_what_is_written_there():
    """`weft.kube.pods` reads the same two annotations."""
    annotations = injected(gateway())["metadata"]["annotations"]
    assert annotations["inject.istio.io/templates"] == "gateway"
    assert json.loads(annotations["sidecar.istio.io/status"])


@pytest.mark.parametrize(("limits", "bytes_"), [({"memory": "512Mi"}, 512 << 20), ({}, 1 << 30)])
def test_a_gateway_rejects_requests_before_its_container_is_oom_killed(limits, bytes_):
    document = bootstrap(injected(gateway(containers=[{**CHART, "resources": {"limits": limits}}])))
    _, heap = document["overload_manager"]["resource_monitors"]
    assert heap["typed_config"]["max_heap_size_bytes"] == int(bytes_ * 0.9)
    assert len(bootstrap(injected(pod()))["overload_manager"]["resource_monitors"]) == 1


@pytest.mark.parametrize(
    ("limits", "config", "workers"),
    [
        ({}, "", "2"),
        ({"cpu": "2500m"}, "", "3"),
        ({"cpu": "100m"}, "", "1"),
        ({"cpu": "4"}, "concurrency: 2", "2"),
        ({"cpu": "4"}, "concurrency: 0", None),
    ],
)
def test_a_gateway_has_a_worker_for_each_cpu_unless_concurrency_is_set(limits, config, workers):
    annotations = {**TEMPLATE, **({"proxy.istio.io/config": config} if config else {})}
    result = injected(gateway(annotations, [{**CHART, "resources": {"limits": limits}}]))
    arguments = container(result)["args"]
    found = arguments[arguments.index("--concurrency") + 1] if "--concurrency" in arguments else None
    assert found == workers
