from dataclasses import dataclass
from datetime import timedelta

import pytest

from api.reading import told, value
from weft.model.service import Protocol
from weft.model.workload import ExecProbe, HttpProbe, Probe, RestartPolicy, TcpProbe, WorkloadPort


@dataclass
class Written:
    spec: str
    metadata: str = "name: pay, namespace: shop"

    def __str__(self):
        return f"apiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {{{self.metadata}}}\nspec: {{{self.spec}}}\n"


def workload(spec, **more):
    return value(str(Written(spec, **more)))


def test_reads_a_workload():
    found = workload(
        "command: [python3, pay.py], workingDirectory: app, env: {PORT: '8080'}, serviceAccount: pay, "
        "ports: [{name: http, port: 8080}, {port: 9000, protocol: tcp}], replicas: 2, restart: Never, locality: eu/a, "
        "excludeInboundPorts: [9000], excludeOutboundPorts: [5432], excludeOutboundRanges: [10.1.0.0/16]",
        metadata="name: pay, namespace: shop, labels: {app: payments}",
    )
    assert found.command == ("python3", "pay.py")
    assert found.working_directory == "/meshes/shop/app"
    assert found.environment == (("PORT", "8080"),)
    assert found.service_account == "pay"
    assert found.ports == (WorkloadPort(8080, "http", Protocol.HTTP), WorkloadPort(9000, "", Protocol.TCP))
    assert (found.replicas, found.restart, found.locality) == (2, RestartPolicy.NEVER, "eu/a")
    assert (found.exclude_inbound_ports, found.exclude_outbound_ports) == ((9000,), (5432,))
    assert found.exclude_outbound_ranges == ("10.1.0.0/16",)
    assert found.labels == (("app", "payments"),)


def test_what_is_left_out_has_its_default():
    found = workload("command: [true]".replace("true", "'true'"))
    assert found.labels == (("app", "pay"),)
    assert found.working_directory == "/meshes/shop"
    assert (found.replicas, found.restart, found.inject, found.service_account) == (
        1,
        RestartPolicy.ALWAYS,
        True,
        "default",
    )
    assert (found.include_inbound_ports, found.include_outbound_ranges) == ("*", "*")


def test_replicas_may_be_none_at_all():
    assert workload("command: [x], replicas: 0").replicas == 0


def test_a_written_working_directory_and_the_mounts_are_declared_visible():
    found = workload("command: [x], workingDirectory: app, mounts: [data, /srv/ca.pem, ../common, data]")
    assert found.mounts == ("/meshes/shop/data", "/srv/ca.pem", "/meshes/common", "/meshes/shop/app")
    assert workload("command: [x]").mounts == ()
    assert workload("command: [x], workingDirectory: /").mounts == ()


def test_an_absolute_working_directory_stays():
    assert workload("command: [x], workingDirectory: /srv").working_directory == "/srv"


def test_the_environment_may_be_a_list():
    assert workload("command: [x], env: [{name: A, value: b}, {name: C}]").environment == (("A", "b"), ("C", ""))


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("http: {path: /ready, port: 8080, headers: {x: y}}", HttpProbe(8080, "/ready", "HTTP", (("x", "y"),))),
        ("http: {port: http}", HttpProbe("http", "/")),
        ("tcp: {port: 8080}", TcpProbe(8080)),
        ("exec: {command: [test, -f, x]}", ExecProbe(("test", "-f", "x"))),
    ],
)
def test_reads_probes(text, check):
    spec = f"command: [x], ports: [{{name: http, port: 80}}], readiness: {{{text}, period: 200ms, failureThreshold: 5}}"
    assert workload(spec).readiness == Probe(check, period=timedelta(milliseconds=200), failure_threshold=5)


def test_istios_annotations_are_honoured():
    found = workload(
        "command: [x], excludeOutboundPorts: [1]",
        metadata=(
            "name: pay, annotations: {sidecar.istio.io/inject: 'false', "
            "traffic.sidecar.istio.io/excludeOutboundPorts: '5432, 1', "
            "traffic.sidecar.istio.io/excludeInboundPorts: '7', traffic.sidecar.istio.io/includeInboundPorts: '80,81', "
            "traffic.sidecar.istio.io/includeOutboundPorts: '90', "
            "traffic.sidecar.istio.io/includeOutboundIPRanges: '10.0.0.0/8', "
            "traffic.sidecar.istio.io/excludeOutboundIPRanges: '10.1.0.0/16'}"
        ),
    )
    assert not found.inject
    assert found.exclude_outbound_ports == (1, 5432)
    assert found.exclude_inbound_ports == (7,)
    assert found.include_inbound_ports == "80,81"
    assert found.include_outbound_ports == (90,)
    assert found.include_outbound_ranges == "10.0.0.0/8"
    assert found.exclude_outbound_ranges == ("10.1.0.0/16",)


def test_no_inbound_ports_at_all_is_an_empty_list():
    metadata = "name: pay, annotations: {traffic.sidecar.istio.io/includeInboundPorts: ''}"
    assert workload("command: [x]", metadata=metadata).include_inbound_ports == ""
    assert workload("command: [x], includeInboundPorts: []").include_inbound_ports == ""
    assert workload("command: [x], includeInboundPorts: '*'").include_inbound_ports == "*"


def test_the_label_can_switch_the_proxy_off_too():
    assert not workload("command: [x]", metadata="name: pay, labels: {sidecar.istio.io/inject: 'false'}").inject


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("replicas: 1", "4 `command` is required"),
        ("command: python3 pay.py", '4 `command` must be a list, not "python3 pay.py" (begin each item with `- `)'),
        ("command: []", "4 `command` must not be empty"),
        ("command: [x], readinessProbe: {}", "4 unknown field `readinessProbe` (weft calls it `readiness`)"),
        ("command: [x], restartPolicy: Never", "4 unknown field `restartPolicy` (weft calls it `restart`)"),
        (
            "command: [x], restart: Sometimes",
            "4 `restart` cannot be `Sometimes` (known here: Always, Never, OnFailure)",
        ),
        ("command: [x], replicas: 100000", "4 `replicas` must be between 0 and 1000, not 100000"),
        ("command: [x], env: {A: 1}", '4 `A` must be text, not the number 1 (put it in quotes: "1")'),
        ("command: [x], env: [{name: A, valueFrom: {}}]", "4 `valueFrom` needs Kubernetes (write the `value`)"),
        ("command: [x], env: [{name: A}, {name: A}]", "4 `A` is listed twice"),
        ("command: [x], env: {A=B: x}", "4 `A=B` is not a name for an environment variable"),
        (
            "command: [x], ports: [{containerPort: 80, port: 80}]",
            "4 unknown field `containerPort` (weft calls it `port`)",
        ),
        ("command: [x], ports: [{port: 80}, {port: 80}]", "4 port 80 is listed twice"),
        (
            "command: [x], ports: [{port: 15001}]",
            "4 port 15001 is reserved for the proxy in every pod (use another port)",
        ),
        ("command: [x], readiness: {}", "4 `readiness` needs a check (set `http`, `tcp` or `exec`)"),
        (
            "command: [x], readiness: {tcp: {port: web}}",
            "4 the workload has no port named `web` (name one of `ports`, or write its number)",
        ),
        ("command: [x], readiness: {http: {port: 80, path: ready}}", "4 `ready` is not a path (begin it with /)"),
        (
            "command: [x], readiness: {tcp: {port: 80}, periodSeconds: 1}",
            "4 unknown field `periodSeconds` (weft calls it `period`)",
        ),
        (
            "command: [x], serviceAccount: A",
            "4 `A` is not a service account (use lower-case letters, digits and -)",
        ),
    ],
)
def test_reports_what_is_wrong(spec, problem):
    assert told(str(Written(spec))) == [problem]


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (
            "traffic.sidecar.istio.io/excludeOutboundPorts: 'a'",
            "3 `a` is not a port (write numbers, separated by commas)",
        ),
        (
            "traffic.sidecar.istio.io/excludeOutboundIPRanges: 'a'",
            "3 `a` is not a CIDR range (write ranges such as 10.0.0.0/8,192.168.0.0/16)",
        ),
        ("sidecar.istio.io/inject: maybe", '3 `sidecar.istio.io/inject` must be true or false, not "maybe"'),
        (
            "traffic.sidecar.istio.io/excludeInterfaces: x",
            "3 warning: `traffic.sidecar.istio.io/excludeInterfaces` is ignored by this version of weft",
        ),
    ],
)
def test_reports_wrong_annotations(annotation, problem):
    assert told(str(Written("command: [x]", f"name: pay, annotations: {{{annotation}}}"))) == [problem]


def test_reads_the_published_ports_of_a_gateway():
    found = workload("gateway: {publish: [{port: 443, hostPort: 8443}, {port: 8080, address: '::1'}]}, replicas: 2")
    assert found.gateway and found.command == ()
    assert [(each.port, each.host_port, each.address) for each in found.publish] == [
        (443, 8443, "127.0.0.1"),
        (8080, 8080, "::1"),
    ]
    assert all(each.line for each in found.publish)
    assert not workload("command: [x]").gateway
    assert workload("gateway: {}").publish == ()


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("gateway: {}, command: [x]", "`command` has no effect"),
        ("gateway: {}, readiness: {tcp: {port: 1}}", "`readiness` has no effect"),
        ("gateway: {}, excludeInboundPorts: [1]", "`excludeInboundPorts` has no effect"),
        ("gateway: {publish: [{hostPort: 1}]}", "`port` is required"),
        ("gateway: {publish: [{port: 15021}]}", "port 15021 is reserved for the proxy"),
        ("gateway: {publish: [{port: 80, hostPort: 70000}]}", "70000"),
        ("gateway: {publish: [{port: 80, address: here}]}", "here"),
        (
            "gateway: {publish: [{port: 80, hostPort: 1}, {port: 81, hostPort: 1}]}",
            "port 1 of 127.0.0.1 is listed twice",
        ),
        ("gateway: {published: []}", "published"),
    ],
)
def test_rejects_fields_that_a_gateway_cannot_have(spec, what):
    problems = told(str(Written(spec)))
    assert any(each.startswith("4 ") and what in each for each in problems), problems


def test_a_gateway_without_a_proxy_is_rejected():
    metadata = "name: edge, labels: {sidecar.istio.io/inject: 'false'}"
    assert "a gateway is itself a proxy" in str(told(str(Written("gateway: {}", metadata=metadata))))
