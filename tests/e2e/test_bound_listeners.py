"""Listeners of a Sidecar with an address of their own: `bind` and `captureMode: NONE`, for calls and for callers."""

from __future__ import annotations

import sys

import pytest

from e2e.looking import weft
from e2e.objects import http_service, istio, service, text, virtual_service, workload
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECURITY = {"apiVersion": "security.istio.io/v1"}
STRICT = istio("PeerAuthentication", "strict", {"mtls": {"mode": "STRICT"}}) | SECURITY
DIRECT = {
    "traffic.sidecar.istio.io/includeInboundPorts": "",
    "traffic.sidecar.istio.io/includeOutboundIPRanges": "",
}
# Sends a request for the host `one` to a Unix socket and prints the first bytes of the response.
CALL = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.sendall(b"GET / HTTP/1.1\\r\\nhost: one\\r\\n\\r\\n")
print(line.recv(100))
"""


def files(control):
    return {
        "client.yaml": text(
            workload("client", control=control),
            # Nothing is intercepted: all of its traffic that passes its proxy uses listeners of its Sidecar.
            workload("direct", control=control, serve="http=8080", annotations=DIRECT),
            service("direct", {"name": "http", "port": 80, "targetPort": 9090}),
        ),
        "inner.yaml": text(
            workload("inner", control=control, serve="http=8080"),
            service("inner", {"name": "http", "port": 80, "targetPort": 9090}),
        ),
        "one.yaml": text(workload("one", control=control, serve="http=8080 echo=9000"), http_service("one")),
        "two.yaml": text(workload("two", control=control, serve="http=8080"), http_service("two")),
    }


def sidecar(*egress, of="client", ingress=(), **spec):
    listeners = {"egress": list(egress)} if egress else {}
    listeners |= {"ingress": list(ingress)} if ingress else {}
    return istio("Sidecar", "own", {"workloadSelector": {"labels": {"app": of}}, **listeners, **spec})


def port(number, protocol="HTTP"):
    return {"number": number, "name": "own", "protocol": protocol}


async def name_of(mesh, url, *, who="client", **arguments):
    """The status, and the workload that responds."""
    answer = await mesh.get(who, url, **arguments)
    return answer["status"], answer["body"]["pod"].partition("-")[0] if isinstance(answer["body"], dict) else ""


def caller(answer):
    """The identity of the caller in its certificate, as the application sees it."""
    return dict(answer["body"]["headers"]).get("x-forwarded-client-cert", "")


@proves("Sidecar", "spec.egress[].captureMode", "spec.egress[].bind", "spec.egress[].port.number")
@pytest.mark.parametrize("who", ("client", "direct"))
async def test_the_proxy_listens_where_an_egress_listener_is_bound(mesh, who):
    """The Host header selects the service, with its VirtualService. Other hosts are rejected."""
    own = {"port": port(7000), "captureMode": "NONE", "hosts": ["./one.shop.svc.cluster.local"]}
    more = {**own, "port": port(7001), "bind": "127.0.0.5", "hosts": ["./*"]}
    rest = {"hosts": ["./*"]}
    marked = virtual_service(
        "one", {"headers": {"response": {"set": {"x-routed": "yes"}}}, "route": [{"destination": {"host": "one"}}]}
    )
    await mesh.try_out(sidecar(own, more, rest, of=who), marked)
    answer = await mesh.get(who, "http://127.0.0.1:7000/", headers={"host": "one"})
    assert (answer["status"], answer["body"]["pod"], answer["headers"]["x-routed"]) == (200, "one-0", "yes")
    assert await name_of(mesh, "http://127.0.0.5:7001/", headers={"host": "one"}, who=who) == (200, "one")
    assert await name_of(mesh, "http://127.0.0.5:7001/", headers={"host": "two.shop"}, who=who) == (200, "two")
    assert (await mesh.get(who, "http://127.0.0.1:7000/", headers={"host": "two"}))["status"] == 502
    said = await weft(
        *("explain", who, "--to", "http://127.0.0.1:7000/", "-H", "host: one", "--mesh", mesh.engine.name), both=True
    )
    assert "sidecar_127.0.0.1_7000" in said and "one-0" in said
    said = await weft("why", who, "listener", "sidecar_127.0.0.1_7000", "--mesh", mesh.engine.name)
    assert "sidecar-own-listener" in said and "Sidecar shop/own" in said
    assert [each for each in mesh.problems() if "Sidecar" in each] == []


async def test_calls_through_a_bound_listener_use_mutual_tls(mesh):
    await mesh.try_out(
        sidecar({"port": port(7000), "captureMode": "NONE", "hosts": ["./one.shop.svc.cluster.local"]}, of="direct"),
        STRICT,
    )
    answer = await mesh.get("direct", "http://127.0.0.1:7000/", headers={"host": "one"})
    assert answer["status"] == 200
    assert "/sa/" in caller(answer)


@proves("Sidecar", "spec.egress[].bind")
async def test_calls_to_a_bind_address_that_is_captured_are_intercepted(mesh):
    """No interface has this address."""
    own = {"port": port(7000), "bind": "192.0.2.7", "hosts": ["./one.shop.svc.cluster.local"]}
    await mesh.try_out(sidecar(own, {"hosts": ["./two.shop.svc.cluster.local"]}))
    assert await name_of(mesh, "http://192.0.2.7:7000/", headers={"host": "one"}) == (200, "one")
    assert await name_of(mesh, "http://two/") == (200, "two")
    said = await weft(
        *("explain", "client", "--to", "http://192.0.2.7:7000/", "-H", "host: one", "--mesh", mesh.engine.name),
        both=True,
    )
    assert "sidecar_192.0.2.7_7000" in said and "one-0" in said


@proves("Sidecar", "spec.egress[].captureMode", "spec.egress[].port.protocol")
async def test_connections_to_a_bound_tcp_port_reach_the_service(mesh):
    own = {"port": port(7002, "TCP"), "captureMode": "NONE", "hosts": ["./echo.example.com"]}
    await mesh.try_out(
        istio("ServiceEntry", "other", {
            "hosts": ["echo.example.com"], "ports": [{"number": 9000, "name": "tcp", "protocol": "TCP"}],
            "resolution": "STATIC", "endpoints": [{"address": mesh.pod("one").addresses[0]}],
        }),
        sidecar(own),
    )  # fmt: skip
    answer = await mesh.tell("client", "tcp", host="127.0.0.1", port=7002, send="hello", read=5)
    assert answer["received"] == "hello"


@proves("Sidecar", "spec.egress[].bind")
async def test_a_unix_socket_can_be_called(mesh):
    own = {"port": port(0), "bind": f"unix://{mesh.sockets}/own.sock", "hosts": ["./one.shop.svc.cluster.local"]}
    await mesh.try_out(sidecar(own, {"hosts": ["./two.shop.svc.cluster.local"]}))
    answer = await mesh.tell("client", "run", argv=[sys.executable, "-c", CALL, f"{mesh.sockets}/own.sock"])
    assert "HTTP/1.1 200" in str(answer)
    assert [each for each in mesh.problems() if "Sidecar" in each] == []


@proves("Sidecar", "spec.ingress[].captureMode", "spec.ingress[].bind")
@pytest.mark.parametrize("bind", ({}, {"bind": "0.0.0.0"}))
async def test_the_proxy_listens_where_an_ingress_listener_is_bound(mesh, bind):
    """Policies and the default endpoint hold whether calls to the port are intercepted (`inner`) or not (`direct`).
    Mutual TLS is used where they are intercepted: callers do not use it for other ports."""
    ingress = {"port": port(9090), "captureMode": "NONE", "defaultEndpoint": "127.0.0.1:8080", **bind}
    denied = {"to": [{"operation": {"paths": ["/denied"]}}]}
    deny = istio("AuthorizationPolicy", "deny", {"action": "DENY", "rules": [denied]}) | SECURITY
    for name in ("direct", "inner"):
        await mesh.try_out(sidecar(of=name, ingress=[ingress]), deny, *((STRICT,) if name == "inner" else ()))
        answer = await mesh.get("client", f"http://{name}/")
        assert (answer["status"], answer["body"]["pod"]) == (200, f"{name}-0")
        assert bool(caller(answer)) is (name == "inner")
        assert (await mesh.get("client", f"http://{name}/denied"))["status"] == 403
        said = await weft("explain", "client", "--to", f"http://{name}/denied", "--mesh", mesh.engine.name, code=None)
        assert "403" in said and "AuthorizationPolicy shop/deny" in said
