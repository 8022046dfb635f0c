"""Tunnels: connections that a DestinationRule sends through an HTTP proxy, and an application that is asked for one."""

from __future__ import annotations

import pytest

from e2e.objects import istio, service, text, workload
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAR = {"number": 9000, "name": "tcp", "protocol": "TCP"}


def files(control):
    outside = {"sidecar.istio.io/inject": "false"}
    return {
        "client.yaml": text(workload("client", control=control)),
        "far.yaml": text(workload("far", control=control, serve="echo=9000", annotations=outside)),
        "proxy.yaml": text(
            workload("proxy", control=control, serve="connect=3128 connect=3129", annotations=outside),
            service("proxy", {"name": "tcp", "port": 3128}, {"name": "http", "port": 3129}),
        ),
        "inner.yaml": text(
            workload("inner", control=control, serve="connect=3128"),
            service("inner", {"name": "tcp", "port": 3128}),
        ),
    }


def tunnel(mesh, **more):
    return {"targetHost": mesh.pod("far").addresses[0], "targetPort": 9000, **more}


def routed(to, match=None, kind="tcp"):
    """An outside host whose connections a route sends to the proxy."""
    entry = {"hosts": ["far.example.com"], "addresses": ["192.0.2.77"], "ports": [FAR], "resolution": "STATIC",
             "endpoints": [{"address": "192.0.2.78"}]}  # fmt: skip
    route = {**({"match": [match]} if match else {}), "route": [{"destination": to}]}
    return (
        istio("ServiceEntry", "far", entry),
        istio("VirtualService", "far", {"hosts": ["far.example.com"], kind: [route]}),
    )


async def said(mesh, host="192.0.2.77", port=9000):
    """Envoy ends a tunnel over HTTP/1.1 with the caller's side of it, so that one waits for the answer."""
    return (await mesh.tell("client", "tcp", host=host, port=port, send="hello", read=5))["received"]


def through(mesh, method):
    address = mesh.pod("far").addresses[0]
    return [method, f"[{address}]:9000" if ":" in address else f"{address}:9000"]


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tunnel.protocol",
    "spec.trafficPolicy.tunnel.targetHost",
    "spec.trafficPolicy.tunnel.targetPort",
)
@pytest.mark.parametrize("port", [3128, 3129])  # declared TCP, and HTTP
@pytest.mark.parametrize("written", ["", "CONNECT", "POST"])
async def test_connections_of_a_tcp_route_go_through_a_tunnel(mesh, written, port):
    wanted = tunnel(mesh, **({"protocol": written} if written else {}))
    rule = {"host": "proxy", "trafficPolicy": {"tunnel": wanted}}
    await mesh.try_out(*routed({"host": "proxy", "port": {"number": port}}), istio("DestinationRule", "proxy", rule))
    before = len(await mesh.tell("proxy", "tunnels"))
    assert await said(mesh) == "hello"
    assert (await mesh.tell("proxy", "tunnels"))[before:] == [through(mesh, written or "CONNECT")]


@proves("DestinationRule", "spec.subsets[].trafficPolicy")
async def test_a_subset_has_a_tunnel_of_its_own_and_a_port_cannot_take_it_away(mesh):
    rule = {
        "host": "proxy",
        "trafficPolicy": {"portLevelSettings": [{"port": {"number": 3128}, "loadBalancer": {"simple": "RANDOM"}}]},
        "subsets": [{"name": "all", "labels": {"app": "proxy"}, "trafficPolicy": {"tunnel": tunnel(mesh)}}],
    }
    to = {"host": "proxy", "port": {"number": 3128}, "subset": "all"}
    await mesh.try_out(*routed(to), istio("DestinationRule", "proxy", rule))
    assert await said(mesh) == "hello"


async def test_a_tunnel_to_a_proxy_with_a_sidecar_is_within_the_meshs_tls(mesh):
    rule = {"host": "inner", "trafficPolicy": {"tunnel": tunnel(mesh)}}
    await mesh.try_out(*routed({"host": "inner"}), istio("DestinationRule", "inner", rule))
    assert await said(mesh) == "hello"
    assert (await mesh.tell("inner", "tunnels"))[-1] == through(mesh, "CONNECT")
    assert await mesh.stat("client", r"^cluster\.outbound\|3128\|\|inner\..*\.ssl\.handshake$") > 0


async def test_a_service_of_its_own_is_called_through_its_tunnel(mesh):
    """Whoever calls the proxy's TCP port means what is behind the tunnel."""
    await mesh.try_out(istio("DestinationRule", "proxy", {"host": "proxy", "trafficPolicy": {"tunnel": tunnel(mesh)}}))
    assert await said(mesh, "proxy", 3128) == "hello"


async def test_a_tunnel_that_the_proxy_cannot_open_closes_the_connection(mesh):
    nowhere = {"targetHost": "127.0.0.1", "targetPort": 1}
    await mesh.try_out(*routed({"host": "proxy", "port": {"number": 3128}}),
                       istio("DestinationRule", "proxy", {"host": "proxy", "trafficPolicy": {"tunnel": nowhere}}))  # fmt: skip
    assert await said(mesh) == ""
