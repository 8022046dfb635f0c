from __future__ import annotations

from datetime import timedelta

import pytest

from weft.install import workloads
from weft.model.workload import (
    ExecProbe,
    HttpProbe,
    Probe,
    PublishedPort,
    RestartPolicy,
    TcpProbe,
    Workload,
    WorkloadPort,
)

WEB = Workload(
    name="web-v1",
    namespace="shop",
    command=("python3", "web.py"),
    labels=(("app", "web"), ("version", "v1")),
    service_account="web",
    environment=(("PORT", "8080"),),
    ports=(WorkloadPort(8080, "http"), WorkloadPort(9000)),
    replicas=2,
)


def with_(**fields):
    import msgspec

    return msgspec.structs.replace(WEB, **fields)


def pod(workload):
    return workloads.running(workload, "weft:1", "programs-x")["spec"]["template"]


def test_a_workload_that_always_restarts_is_a_deployment():
    made = workloads.running(WEB, "weft:1", "programs-x")
    assert (made["kind"], made["metadata"]["name"], made["spec"]["replicas"]) == ("Deployment", "web-v1", 2)
    assert made["spec"]["selector"]["matchLabels"] == made["spec"]["template"]["metadata"]["labels"]
    [container] = made["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python3", "web.py"]
    assert {"name": "PORT", "value": "8080"} in container["env"]
    assert container["ports"] == [{"containerPort": 8080, "name": "http"}, {"containerPort": 9000}]
    assert made["spec"]["template"]["spec"]["serviceAccountName"] == "web"


@pytest.mark.parametrize("restart", [RestartPolicy.ON_FAILURE, RestartPolicy.NEVER])
def test_what_may_end_is_a_job(restart):
    made = workloads.running(with_(restart=restart), "weft:1", "programs-x")
    assert made["kind"] == "Job"
    assert made["spec"]["template"]["spec"]["restartPolicy"] == restart.value


def test_a_workload_without_a_proxy_stays_without_one():
    assert pod(with_(inject=False))["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert "sidecar.istio.io/inject" not in pod(WEB)["metadata"]["labels"]


def test_interception_settings_become_istios_annotations():
    told = pod(with_(exclude_inbound_ports=(9000, 9001), include_outbound_ranges="10.0.0.0/8"))["metadata"][
        "annotations"
    ]
    assert told == {
        "traffic.sidecar.istio.io/excludeInboundPorts": "9000,9001",
        "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8",
    }
    assert "annotations" not in pod(WEB)["metadata"]


@pytest.mark.parametrize(
    ("check", "action"),
    [
        (
            HttpProbe("http", "/ready", headers=(("x", "y"),)),
            {
                "httpGet": {
                    "path": "/ready",
                    "port": "http",
                    "scheme": "HTTP",
                    "httpHeaders": [{"name": "x", "value": "y"}],
                }
            },
        ),
        (TcpProbe(7000), {"tcpSocket": {"port": 7000}}),
        (ExecProbe(("true",)), {"exec": {"command": ["true"]}}),
    ],
)
def test_the_readiness_probe_is_kept(check, action):
    probe = Probe(check, period=timedelta(milliseconds=200), failure_threshold=5)
    [container] = pod(with_(readiness=probe))["spec"]["containers"]
    asked = container["readinessProbe"]
    assert asked.items() >= action.items()
    assert (asked["periodSeconds"], asked["failureThreshold"]) == (1, 5)


def test_equal_files_have_one_name():
    one = workloads.programs(WEB, {"a.py": "1", "b.py": "2"})
    assert one["metadata"]["name"] == workloads.programs(WEB, {"b.py": "2", "a.py": "1"})["metadata"]["name"]
    assert one["metadata"]["name"] != workloads.programs(WEB, {"a.py": "12", "b.py": ""})["metadata"]["name"]


def test_a_namespace_is_in_the_mesh_unless_its_labels_decide_otherwise():
    assert workloads.namespace("shop", {})["metadata"]["labels"] == {"istio-injection": "enabled"}
    assert workloads.namespace("shop", {"istio.io/rev": "x"})["metadata"]["labels"] == {"istio.io/rev": "x"}


def test_a_gateway_is_a_deployment_that_the_injector_completes_and_a_service_where_it_is_published():
    edge = Workload("edge", "shop", (), (("app", "edge"),), gateway=True, publish=(PublishedPort(443, 8443),))
    deployment, service = workloads.gateway(edge)
    template = deployment["spec"]["template"]
    assert template["metadata"]["annotations"] == {"inject.istio.io/templates": "gateway"}
    assert template["metadata"]["labels"] == {"app": "edge", "sidecar.istio.io/inject": "true"}
    assert [(each["name"], each["image"]) for each in template["spec"]["containers"]] == [("istio-proxy", "auto")]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == {"app": "edge"}
    assert service["spec"]["ports"] == [{"name": "tcp-8443", "port": 8443, "targetPort": 443}]
    assert len(workloads.gateway(with_(gateway=True))) == 1
