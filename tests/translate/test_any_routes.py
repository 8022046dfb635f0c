"""Random VirtualServices, alone, together and in conflict: a real Envoy accepts the result, and the order of their
files and events changes no byte.

`WEFT_ROUTE_SETS` is the number of sets that Envoy gets, each of many hosts; `make test-routes` uses hundreds. The same
number gives the same sets.
"""

import json
import os
import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from explain.chance import drawn
from explain.meshes import Maker
from golden.render import compile_group
from model.builders import group
from weft.api.parse import parse
from weft.base.problem import Severity
from weft.envoy.validate import validate
from weft.files.documents import read_documents
from weft.mesh.mesh import Mesh
from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of

SETS = int(os.environ.get("WEFT_ROUTE_SETS", "4"))
HOSTS = 24
PORTS = {80: "http", 81: "grpc-web", 9000: "tcp", 9443: "tls", 7000: "unnamed"}
GROUPS = (
    group("frontend", "shop"),
    group("batch", "jobs"),
    Group(ProxyKind.GATEWAY, "shop", labels_of({"istio": "ingress"}), "ingress"),
)
_CODES = "5xx,reset,503", "unavailable,cancelled", "connect-failure,429,418", ""


class Routes(Maker):
    """Documents of a mesh that is all routes."""

    def documents(self, hosts=HOSTS):
        self.hosts = [f"host{number}" for number in range(hosts)]
        made = [self.service(name) for name in self.hosts[: hosts - hosts // 4]]  # some hosts have no service
        made += [self.rule(name) for name in self.hosts if self.one_in(2)]
        for number, name in enumerate(self.hosts):
            made += [self.routing(f"vs{number}-{part}", name) for part in range(self.pick(1, 1, 1, 2))]
        made += self.gateways()
        for number in range(4):
            spec = {"http": [self.any_route(index, deep=True) for index in range(2)]}
            made.append(document("VirtualService", f"part{number}", spec))
        return made

    def gateways(self):
        """Two Gateways for the same proxies, whose servers claim the same ports and names."""
        for name in ("edge", "other"):
            servers = []
            for number in range(5):
                protocol = self.pick("HTTP", "HTTP", "HTTPS", "TLS", "TCP")
                port = {"number": self.pick(80, 443, 9000), "name": f"p{number}", "protocol": protocol}
                hosts = self.pick(["*"], ["*.example.com", "host1.example.com"], ["./*", "jobs/host2.example.com"])
                tls = {"mode": self.pick("PASSTHROUGH", "ISTIO_MUTUAL")} if protocol in ("HTTPS", "TLS") else None
                if protocol == "HTTP" and self.one_in(4):
                    tls = {"httpsRedirect": True}
                servers.append({"port": port, "hosts": hosts} | ({"tls": tls} if tls else {}))
            yield document("Gateway", name, {"selector": {"istio": "ingress"}, "servers": servers})

    def service(self, name):
        ports = [{"name": named, "port": number} for number, named in PORTS.items()]
        spec = {"clusterIP": f"10.96.1.{len(name) * 7 + int(name[4:])}", "selector": {"app": name}, "ports": ports}
        return document("Service", name, spec, "v1")

    def rule(self, name):
        subsets = [{"name": subset, "labels": {"version": subset}} for subset in ("v1", "v2")]
        return document("DestinationRule", name, {"host": name, "subsets": subsets})

    def routing(self, name, host):
        hosts = [host] if not self.one_in(4) else [host, f"{host}.example.com", "*.wild.example.com"]
        spec = {"hosts": hosts}
        if not self.one_in(6):
            spec["http"] = [self.any_route(number) for number in range(self.chance.randint(1, 4))]
        if self.one_in(3) or "http" not in spec:
            spec["tcp"] = [self.stream() for _ in range(self.pick(1, 2))]
        if self.one_in(3):
            spec["tls"] = [self.stream(sni=self.some(hosts)) for _ in range(self.pick(1, 2))]
        for field, values in (
            ("exportTo", (["."], ["*"], ["jobs"])),
            ("gateways", (["mesh"], ["mesh", "edge"], ["edge", "other"])),
        ):
            if self.one_in(6 if field == "exportTo" else 2):
                spec[field] = self.pick(*values)
        return document("VirtualService", name, spec)

    def any_route(self, number, *, deep=False):
        route = self.http_route(number)
        if self.one_in(8) and not deep:
            left = {name: route[name] for name in ("name", "match") if name in route}
            return left | {"delegate": {"name": f"part{self.chance.randrange(5)}"}}
        for match in route.get("match", ()):
            if self.one_in(6):
                match["statPrefix"] = "counted"
            if self.one_in(8):
                match["gateways"] = self.pick(["mesh"], ["edge"])
            if self.one_in(8):
                match["sourceLabels"] = {"app": self.pick("frontend", "other")}
        if "route" in route:
            self._more(route)
        return route

    def _more(self, route):
        if self.one_in(3):
            route["mirrors"] = [{"destination": self.where(), "percentage": {"value": self.pick(0, 0.5, 100)}}]
        elif self.one_in(3):
            route |= {"mirror": self.where(), "mirrorPercentage": {"value": 12.5}}
        if self.one_in(3):
            retries = {"attempts": self.pick(1, 3), "retryOn": self.pick(*_CODES), "perTryTimeout": "2s"}
            for field in ("retryRemoteLocalities", "retryIgnorePreviousHosts"):
                if self.one_in(2):
                    retries[field] = self.pick(True, False)
            route["retries"] = retries | ({"backoff": "1s"} if self.one_in(2) else {})

    def where(self):
        return {"host": self.pick(*self.hosts, "missing"), "port": {"number": self.pick(*PORTS)}} | (
            {"subset": self.pick("v1", "v2", "v3")} if self.one_in(3) else {}
        )

    def stream(self, sni=()):
        match = {"sniHosts": sni} if sni else {}
        for field, values in (
            ("port", tuple(PORTS)),
            ("destinationSubnets", (["10.0.0.0/8"], ["10.96.1.7/32", "192.0.2.0/24"])),
            ("sourceLabels", ({"app": "frontend"}, {"app": "other"})),
            ("sourceNamespace", ("shop", "jobs")),
        ):
            if self.one_in(3):
                match[field] = self.pick(*values)
        parts = [{"destination": self.where(), "weight": self.pick(1, 50)} for _ in range(self.pick(1, 2, 3))]
        return ({"match": [match]} if match else {}) | {"route": parts}


def document(kind, name, spec, version="networking.istio.io/v1"):
    metadata = {"name": name, "namespace": "shop"}
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    return text.replace("SERVICE", name if kind == "Service" else "host0")


def parsed(texts):
    """The documents that weft accepts, each from a separate file."""
    found = []
    for number, text in enumerate(texts):
        (read,) = read_documents(text.encode(), f"{number}.json").documents
        outcome = parse(read)
        if not any(problem.severity is Severity.ERROR for problem in outcome.problems):
            found.append((read.key, outcome.values))
    return found


def mesh_of(objects):
    mesh = Mesh()
    for key, values in objects:
        mesh.apply(key, values)
    return mesh


def received(mesh):
    """Everything that two callers and a gateway get, as bytes."""
    for each in GROUPS:
        made = compile_group(mesh, each, judge=False)[0]
        for part in (made.clusters, made.listeners, made.routes, made.endpoints):
            yield from (message.SerializeToString(deterministic=True) for message in part)


@pytest.mark.timeout(1800)
async def test_envoy_accepts_whatever_valid_routes_become():
    for number, chance in enumerate(drawn(st.randoms(use_true_random=True), SETS, seed=1)):
        texts = Routes(chance).documents()
        objects = parsed(texts)
        assert len(objects) >= 0.7 * len(texts), number
        mesh = mesh_of(objects)
        for each in GROUPS:
            made = compile_group(mesh, each, judge=False)[0]
            problems = await validate(
                listeners=made.listeners, clusters=made.clusters, routes=made.routes, endpoints=made.endpoints
            )
            assert problems == [], (number, each)


# A smaller number makes no smaller mesh: there is nothing to shrink.
@settings(max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_the_order_of_files_and_events_changes_no_byte(number, chance):
    objects = parsed(Routes(random.Random(number)).documents(hosts=8))
    expected = list(received(mesh_of(objects)))
    shuffled = chance.sample(objects, len(objects))
    assert list(received(mesh_of(shuffled))) == expected
    # Older versions, and objects that come, go and come again.
    other = dict(parsed(Routes(random.Random(number + 1)).documents(hosts=8)))
    mesh = mesh_of((key, other.get(key, values)) for key, values in shuffled)
    list(received(mesh))
    for key, _ in chance.sample(objects, len(objects) // 2):
        mesh.apply(key, ())
    for key, values in chance.sample(objects, len(objects)):
        mesh.apply(key, values)
    assert list(received(mesh)) == expected
