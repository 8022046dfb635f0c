"""weft's own Workload (`weft.dev/v1alpha1`): a command, or a gateway, that the local engine runs as one or more pods.

    apiVersion: weft.dev/v1alpha1
    kind: Workload
    metadata:
      name: payments-v2
      namespace: shop                     # default: default
      labels: {app: payments, version: v2}  # default: app: NAME
      annotations: {sidecar.istio.io/inject: "false"}  # runs without a proxy
    spec:
      command: [python3, payments.py, --version, v2]   # the program and its arguments; no shell
      workingDirectory: .                 # relative to the file; default: the file's directory
      mounts: [data, ../certificates/ca.pem]    # visible to the command even in directories that are closed to others
      env: {PORT: "8080"}                 # or a list of {name, value}, as in Kubernetes
      serviceAccount: payments            # default: default
      ports: [{name: http, port: 8080, protocol: http}]  # protocol default: by the name's prefix
      replicas: 2                         # default: 1; 0 stops it
      readiness:                          # without it, a pod is ready once its first port listens, or at once
        http: {path: /ready, port: 8080, scheme: HTTP, headers: {x: y}}  # or tcp: {port}, exec: {command: []}
        initialDelay: 0s
        period: 1s
        timeout: 1s
        successThreshold: 1
        failureThreshold: 3
      restart: Always                     # or OnFailure, Never: a job, which may complete
      excludeInboundPorts: [9000]         # interception, like Istio's annotations traffic.sidecar.istio.io/*
      excludeOutboundPorts: [5432]
      excludeOutboundRanges: [10.1.0.0/16]
      includeInboundPorts: [8080]         # default: all
      includeOutboundPorts: [80]          # in addition to includeOutboundRanges
      includeOutboundRanges: [10.0.0.0/8]  # default: all
      locality: region/zone               # default: by the labels istio-locality, topology.kubernetes.io/*

A gateway has no command; its pods are proxies that serve the Gateways whose `selector` matches their labels:

    spec:
      gateway:
        publish:                          # its ports that this machine publishes; default: none
          - {port: 443, hostPort: 8443, address: 127.0.0.1}  # defaults: the same port; 127.0.0.1

A probe's port is a number or a name, as in Kubernetes. Ports and ranges from spec and annotations are joined;
for the three includes, spec wins over annotations.
"""

from __future__ import annotations

import posixpath
from datetime import timedelta
from typing import Any

from weft.api.metadata import Meta
from weft.api.protocol import from_name, istio_protocol
from weft.api.reader import Fields, describe
from weft.api.syntax import is_header, is_object_name, is_port, is_range
from weft.model.locality import stated
from weft.model.names import labels_of
from weft.model.proxy import ADMIN_PORT, OWN_PORTS, TAKEN_PORTS
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

_INJECT = "sidecar.istio.io/inject"
_TRAFFIC = "traffic.sidecar.istio.io/"
_KUBERNETES = {
    "readinessProbe": "readiness", "restartPolicy": "restart", "serviceAccountName": "serviceAccount", "workingDir":
    "workingDirectory", "args": "command", "environment": "env", "httpGet": "http", "tcpSocket": "tcp",
    "periodSeconds": "period", "timeoutSeconds": "timeout", "initialDelaySeconds": "initialDelay", "containerPort":
    "port", "number": "port", "httpHeaders": "headers", "containers": "command", "template": "command",
}  # fmt: skip
_OF_COMMANDS = (
    "command", "workingDirectory", "mounts", "env", "readiness", "restart",
    "excludeInboundPorts", "excludeOutboundPorts", "excludeOutboundRanges",
    "includeInboundPorts", "includeOutboundPorts", "includeOutboundRanges",
)  # fmt: skip
MOST_REPLICAS = 1_000


def read_workload(root: Fields, meta: Meta) -> tuple[Workload, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.also_called(_KUBERNETES)
    labels, annotations = dict(meta.labels), dict(meta.annotations)
    inject = labels.get(_INJECT, annotations.get(_INJECT, "true")).lower()
    if inject not in ("true", "false"):
        root.error(("metadata",), f"`{_INJECT}` must be true or false, not {describe(inject)}")
    traffic = _Traffic(root, annotations)
    ports = _ports(spec)
    replicas = spec.integer("replicas", most=MOST_REPLICAS)
    gateway = spec.fields("gateway")
    if gateway is not None:
        _refuse_beside_gateway(spec, inject)
    command = spec.texts("command", required=gateway is None, most=65_536)
    if command and not command[0]:
        spec.error(("command", 0), "the program's name is empty")
    return (
        Workload(
            name=meta.name,
            namespace=meta.namespace,
            command=command,
            labels=meta.labels if "app" in labels else labels_of({"app": meta.name, **labels}),
            annotations=meta.annotations,
            service_account=_service_account(spec),
            working_directory=_path(spec, spec.text("workingDirectory", default=".", most=4_096)),
            mounts=_mounts(spec),
            environment=_environment(spec),
            ports=ports,
            replicas=1 if replicas is None else replicas,
            readiness=_readiness(spec, {port.name for port in ports}),
            restart=RestartPolicy(spec.choice("restart", tuple(RestartPolicy), default=RestartPolicy.ALWAYS)),
            inject=inject != "false",
            exclude_inbound_ports=_joined(spec.ports("excludeInboundPorts"), traffic.ports("excludeInboundPorts")),
            exclude_outbound_ports=_joined(spec.ports("excludeOutboundPorts"), traffic.ports("excludeOutboundPorts")),
            include_inbound_ports=_include_inbound(spec, traffic),
            include_outbound_ports=spec.ports("includeOutboundPorts") or traffic.ports("includeOutboundPorts"),
            include_outbound_ranges=_include_ranges(spec, traffic),
            exclude_outbound_ranges=tuple(
                dict.fromkeys((*spec.ranges("excludeOutboundRanges"), *traffic.ranges("excludeOutboundIPRanges")))
            ),
            locality=spec.text("locality", most=253) or stated(labels),
            gateway=gateway is not None,
            publish=_publish(gateway) if gateway is not None else (),
            origin=meta.origin,
        ),
    )


def _refuse_beside_gateway(spec: Fields, inject: str) -> None:
    """Check a Workload with `gateway`. Each field of a command or of a sidecar's interception is an error, because it
    has no effect on a gateway. `inject`, the value of `sidecar.istio.io/inject`, must not be "false"."""
    for name in _OF_COMMANDS:
        spec.refused(name, f"a gateway is only a proxy: `{name}` has no effect", f"leave out `{name}`, or `gateway`")
    if inject == "false":
        what = f"a gateway is itself a proxy, so `{_INJECT}` cannot be false"
        spec.error("gateway", what, f"remove `gateway`, or `{_INJECT}`")


def _publish(gateway: Fields) -> tuple[PublishedPort, ...]:
    ports: list[PublishedPort] = []
    for item in gateway.items("publish"):
        number = item.port("port", required=True)
        if number in OWN_PORTS:
            item.error("port", f"port {number} is reserved for the proxy in every pod", "use another port")
        published = PublishedPort(
            port=number,
            host_port=item.port("hostPort") or number,
            address=item.address("address") or "127.0.0.1",
            line=item.line,
        )
        if any((other.address, other.host_port) == (published.address, published.host_port) for other in ports):
            item.error("hostPort", f"port {published.host_port} of {published.address} is listed twice")
        ports.append(published)
    return tuple(ports)


class _Traffic:
    """Reads Istio's annotations `traffic.sidecar.istio.io/*`, whose values are ports, CIDR ranges or `*`, separated
    by commas."""

    def __init__(self, root: Fields, annotations: dict[str, str]) -> None:
        self._root, self._annotations = root, annotations
        for name in ("excludeInterfaces", "kubevirtInterfaces"):
            if _TRAFFIC + name in annotations:
                root.warning(self._at(name), f"`{_TRAFFIC}{name}` is ignored by this version of weft")

    def text(self, name: str) -> str | None:
        return self._annotations.get(_TRAFFIC + name)

    def ports(self, name: str) -> tuple[int, ...]:
        found = []
        for part in self._parts(name):
            if is_port(part):
                found.append(int(part))
            else:
                self._root.error(self._at(name), f"`{part[:40]}` is not a port", "write numbers, separated by commas")
        return tuple(found)

    def ranges(self, name: str) -> tuple[str, ...]:
        ranges = []
        for part in self._parts(name):
            if is_range(part):
                ranges.append(part)
            else:
                what, hint = f"`{part[:40]}` is not a CIDR range", "write ranges such as 10.0.0.0/8,192.168.0.0/16"
                self._root.error(self._at(name), what, hint)
        return tuple(ranges)

    def _parts(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def _at(self, name: str) -> tuple[str, str, str]:
        return ("metadata", "annotations", _TRAFFIC + name)


def _joined(*lists: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(port for ports in lists for port in ports))


def _include_inbound(spec: Fields, traffic: _Traffic) -> str:
    if spec.raw("includeInboundPorts") == "*":
        return "*"
    if spec.has("includeInboundPorts"):
        return ",".join(str(port) for port in spec.ports("includeInboundPorts"))
    if traffic.text("includeInboundPorts") in (None, "*"):
        return "*"
    return ",".join(str(port) for port in traffic.ports("includeInboundPorts"))


def _include_ranges(spec: Fields, traffic: _Traffic) -> str:
    if spec.raw("includeOutboundRanges") == "*":
        return "*"
    if spec.has("includeOutboundRanges"):
        return ",".join(spec.ranges("includeOutboundRanges"))
    if traffic.text("includeOutboundIPRanges") in (None, "*"):
        return "*"
    return ",".join(traffic.ranges("includeOutboundIPRanges"))


def _service_account(spec: Fields) -> str:
    hint = "use lower-case letters, digits and -"
    return spec.checked("serviceAccount", is_object_name, "a service account", hint, default="default", most=253)


def _path(spec: Fields, written: str) -> str:
    return posixpath.normpath(posixpath.join(spec.report.document.directory, written)) if written else ""


def _mounts(spec: Fields) -> tuple[str, ...]:
    written = [*spec.texts("mounts"), *([spec.text("workingDirectory")] if spec.has("workingDirectory") else ())]
    paths = dict.fromkeys(_path(spec, each) for each in written if each)
    return tuple(path for path in paths if path != "/")  # `/` needs no declaration: it is open to all users


def _environment(spec: Fields) -> tuple[tuple[str, str], ...]:
    if isinstance(spec.raw("env"), list):
        variables: dict[str, str] = {}
        for item in spec.items("env"):
            item.refused("valueFrom", "`valueFrom` needs Kubernetes", "write the `value`")
            name = item.text("name", required=True, most=4_096)
            if name and name in variables:
                item.error("name", f"`{name}` is listed twice")
            variables[name] = item.text("value")
    else:
        variables = spec.string_map("env")
    for name in variables:
        if (not name and isinstance(spec.raw("env"), dict)) or "=" in name:
            spec.error("env", f"`{name}` is not a name for an environment variable")
    return tuple(variables.items())


def _ports(spec: Fields) -> tuple[WorkloadPort, ...]:
    ports: list[WorkloadPort] = []
    for item in spec.items("ports"):
        item.also_called(_KUBERNETES)
        number, name = item.port("port", required=True), item.text("name", most=63)
        if name and any(other.name == name for other in ports):
            item.error("name", f"two ports are named `{name}`")
        if number and any(other.number == number for other in ports):
            item.error("port", f"port {number} is listed twice")
        if number == ADMIN_PORT or number in TAKEN_PORTS:
            item.error("port", f"port {number} is reserved for the proxy in every pod", "use another port")
        protocol = istio_protocol(item, number) if item.has("protocol") else from_name(name, number)
        ports.append(WorkloadPort(number, name, protocol))
    return tuple(ports)


def _readiness(spec: Fields, names: set[str]) -> Probe | None:
    fields = spec.fields("readiness")
    if fields is None:
        return None
    fields.also_called(_KUBERNETES)
    check = _check(fields, names)
    return Probe(
        check=check,
        initial_delay=fields.duration("initialDelay", least=timedelta(0)) or timedelta(0),
        period=fields.duration("period", least=timedelta(milliseconds=10)) or timedelta(seconds=1),
        timeout=fields.duration("timeout") or timedelta(seconds=1),
        success_threshold=fields.integer("successThreshold", least=1) or 1,
        failure_threshold=fields.integer("failureThreshold", least=1) or 3,
    )


def _check(fields: Fields, names: set[str]) -> HttpProbe | TcpProbe | ExecProbe:
    if not fields.one_of("http", "tcp", "exec"):
        what, hint = "`readiness` needs a check", "set `http`, `tcp` or `exec`"
        fields.lacks("http", "tcp", "exec", what=what, hint=hint)
    http, tcp, command = fields.fields("http"), fields.fields("tcp"), fields.fields("exec")
    found: HttpProbe | TcpProbe | ExecProbe = TcpProbe(0)
    if command is not None:
        found = ExecProbe(command.texts("command", required=True, most=65_536))
    if tcp is not None:
        found = TcpProbe(_probe_port(tcp, names))
    if http is not None:
        http.also_called(_KUBERNETES)
        path = http.text("path", default="/", most=16_384)
        if not path.startswith("/"):
            http.error("path", f"`{path[:80]}` is not a path", "begin it with /")
        headers = tuple(http.string_map("headers").items())
        for name, _ in headers:
            if not is_header(name):
                http.error(("headers", name), f"`{name[:80]}` is not a header name")
        scheme = http.choice("scheme", ("HTTP", "HTTPS"), default="HTTP")
        found = HttpProbe(_probe_port(http, names), path, scheme, headers)
    return found


def _probe_port(fields: Fields, names: set[str]) -> int | str:
    written: Any = fields.raw("port")
    if not isinstance(written, str):
        return fields.port("port", required=True)
    name = fields.text("port", most=63)
    if name not in names:
        fields.error("port", f"the workload has no port named `{name}`", "name one of `ports`, or write its number")
    return name
