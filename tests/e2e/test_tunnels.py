"""Tunnels: connections that a DestinationRule sends through an HTTP proxy, and an application that is such a proxy."""

from __future__ import annotations

import json

import pytest

from e2e.objects import istio, service, text, workload
from fields import proves
from weft.envoy import binary

pytestmark = pytest.mark.asyncio(loop_scope="module")

INNER = (("tcp", 3128), ("http", 3129), ("open", 3130))  # the last one is undeclared
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
            workload("inner", control=control, serve="connect=3128 connect=3129 connect=3130"),
            service("inner", *({"name": name, "port": port} for name, port in INNER)),
        ),
        "modern.yaml": text(
            service("far", {"name": "tcp", "port": 9000}),
            workload("modern", control=control, serve="http2=3131", command=modern_proxy()),
            service("modern", {"name": "http2", "port": 3131}),
        ),
    }


def modern_proxy():
    """A proxy for tunnels over HTTP/2 that all lead to `far`: an Envoy as the application."""
    types = "type.googleapis.com/envoy.extensions"
    router = {"@type": f"{types}.filters.http.router.v3.Router"}
    route = {"cluster": "far", "upgrade_configs": [{"upgrade_type": "CONNECT", "connect_config": {}}]}
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "codec_type": "HTTP2",
        "http2_protocol_options": {"allow_connect": True},
        "route_config": {"virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [{"match": {"connect_matcher": {}}, "route": route}]}
        ]},
        "http_filters": [{"name": "router", "typed_config": router}],
    }  # fmt: skip
    listener = {
        "address": address("::", 3131),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    listener["address"]["socket_address"]["ipv4_compat"] = True
    endpoint = {"endpoint": {"address": address("far.shop.svc.cluster.local", 9000)}}
    far = {"name": "far", "type": "STRICT_DNS",
           "load_assignment": {"cluster_name": "far", "endpoints": [{"lb_endpoints": [endpoint]}]}}  # fmt: skip
    config = json.dumps({"static_resources": {"listeners": [listener], "clusters": [far]}})
    return [str(binary.find()), "--disable-hot-restart", "--concurrency", "1", "--config-yaml", config]


def address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


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
    """Envoy ends a tunnel over HTTP/1.1 when the caller half-closes, so this waits for the response first."""
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
async def test_a_subset_can_have_its_own_tunnel_and_port_level_settings_do_not_remove_it(mesh):
    rule = {
        "host": "proxy",
        "trafficPolicy": {"portLevelSettings": [{"port": {"number": 3128}, "loadBalancer": {"simple": "RANDOM"}}]},
        "subsets": [{"name": "all", "labels": {"app": "proxy"}, "trafficPolicy": {"tunnel": tunnel(mesh)}}],
    }
    to = {"host": "proxy", "port": {"number": 3128}, "subset": "all"}
    await mesh.try_out(*routed(to), istio("DestinationRule", "proxy", rule))
    assert await said(mesh) == "hello"


@pytest.mark.parametrize("port", [3128, 3129])
async def test_a_tunnel_to_a_proxy_with_a_sidecar_is_within_the_meshs_tls(mesh, port):
    rule = {"host": "inner", "trafficPolicy": {"tunnel": tunnel(mesh)}}
    await mesh.try_out(*routed({"host": "inner", "port": {"number": port}}), istio("DestinationRule", "inner", rule))
    assert await said(mesh) == "hello"
    assert (await mesh.tell("inner", "tunnels"))[-1] == through(mesh, "CONNECT")
    assert await mesh.stat("client", rf"^cluster\.outbound\|{port}\|\|inner\..*\.ssl\.handshake$") > 0


async def test_a_tunnel_is_requested_in_the_http_version_that_the_proxys_port_declares(mesh):
    """HTTP/2 from the first proxy to the last, which terminates the tunnel."""
    rule = {"host": "modern", "trafficPolicy": {"tunnel": tunnel(mesh)}}
    await mesh.try_out(*routed({"host": "modern"}), istio("DestinationRule", "modern", rule))
    assert await said(mesh) == "hello"
    assert await mesh.stat("client", r"^cluster\.outbound\|3131\|\|modern\..*\.upstream_cx_http2_total$") > 0


async def test_a_service_of_its_own_is_called_through_its_tunnel(mesh):
    """A call to the proxy's TCP port goes to the end of the tunnel."""
    await mesh.try_out(istio("DestinationRule", "proxy", {"host": "proxy", "trafficPolicy": {"tunnel": tunnel(mesh)}}))
    assert await said(mesh, "proxy", 3128) == "hello"


async def test_a_tunnel_that_the_proxy_cannot_open_closes_the_connection(mesh):
    nowhere = {"targetHost": "127.0.0.1", "targetPort": 1}
    await mesh.try_out(*routed({"host": "proxy", "port": {"number": 3128}}),
                       istio("DestinationRule", "proxy", {"host": "proxy", "trafficPolicy": {"tunnel": nowhere}}))  # fmt: skip
    assert await said(mesh) == ""


async def connect(mesh, port, host="inner"):
    goal = through(mesh, "CONNECT")[1]
    send = f"CONNECT {goal} HTTP/1.1\r\nhost: {goal}\r\n\r\n"
    return (await mesh.tell("client", "raw", host=host, port=port, send=send, then="hello", until="hello"))["received"]


@pytest.mark.parametrize("port", [3128, 3130])  # declared TCP, and undeclared
async def test_a_connect_request_reaches_an_application_that_is_a_proxy(mesh, port):
    answer = await connect(mesh, port)
    assert answer.startswith("HTTP/1.1 200"), answer
    assert answer.endswith("hello")
    assert (await mesh.tell("inner", "tunnels"))[-1] == through(mesh, "CONNECT")
    assert await mesh.stat("client", rf"^cluster\.outbound\|{port}\|\|inner\..*\.ssl\.handshake$") > 0


async def test_a_connect_request_on_a_declared_http_port_matches_no_service(mesh):
    """Services share the port, and the request names only the destination of the tunnel."""
    before = await mesh.tell("inner", "tunnels")
    assert (await connect(mesh, 3129)).startswith("HTTP/1.1 404")
    assert await mesh.tell("inner", "tunnels") == before


async def test_a_route_for_all_paths_takes_a_connect_too(mesh):
    route = {"hosts": ["inner"], "http": [{"route": [{"destination": {"host": "proxy", "port": {"number": 3128}}}]}]}
    await mesh.try_out(istio("VirtualService", "inner", route))
    assert (await connect(mesh, 3130)).endswith("hello")
    assert (await mesh.tell("proxy", "tunnels"))[-1] == through(mesh, "CONNECT")


async def test_no_tunnel_leads_past_a_policy_that_looks_at_requests(mesh):
    """A tunnel may contain any request, and no filter would inspect it."""
    rule = {"to": [{"operation": {"paths": ["/admin"]}}]}
    spec = {"selector": {"matchLabels": {"app": "inner"}}, "action": "DENY", "rules": [rule]}
    metadata = {"name": "inner", "namespace": "shop"}
    kind = {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy"}
    await mesh.try_out({**kind, "metadata": metadata, "spec": spec})
    before = await mesh.tell("inner", "tunnels")
    assert (await connect(mesh, 3130)).startswith("HTTP/1.1 4")
    assert await mesh.tell("inner", "tunnels") == before
