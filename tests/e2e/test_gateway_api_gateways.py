"""Gateways of the Gateway API and the routes attached to them, called from outside the mesh: a caller on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import tempfile
import time

import pytest
from tools.ports import free_port

from ca.making import ca, p256
from e2e.looking import weft
from e2e.objects import istio, service, standard, text, workload
from eventually import eventually
from fields import proves
from translate.raw_http2 import ask_by_http2
from weft.ca.certificates import Signing, Validity, certificate_pem, key_pem, make_leaf, make_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = p256()
ROOT = ca("the root of these tests", KEY)
SIGNING = Signing(ROOT, KEY, ())
CALLERS = Signing(ca("the root of the gateway's client certificate", KEY), KEY, ())


HTTP, HTTPS, TCP, PASSED = (free_port() for _ in range(4))


def secret(name, *hosts, namespace="shop"):
    key = p256()
    now = time.time()
    made = make_server(SIGNING, key.public_key(), hosts, Validity(now - 60, now + 3600))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"tls.crt": certificate_pem(made), "tls.key": key_pem(key)},
    }


SAFE = """
import http.server, json, os, ssl, sys, tempfile
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"pod": os.environ["POD_NAME"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
    file.write(os.environ["PEM"])
    file.flush()
    context.load_cert_chain(file.name)
if callers := os.environ.get("CALLERS"):
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=callers)
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


URI = "spiffe://example.com/known"


def only_a_uri():
    key, now = p256(), time.time()
    return key_pem(key) + certificate_pem(make_leaf(SIGNING, key.public_key(), URI, Validity(now - 60, now + 3600)))


def files(control):
    held = secret("", "safe.example.com")["stringData"]
    tls_of_its_own = {
        "command": [sys.executable, "-c", SAFE],
        "annotations": {"sidecar.istio.io/inject": "false"},
    }
    label = {"gateway.networking.k8s.io/gateway-name": "edge"}
    published = [(80, HTTP), (443, HTTPS), (9000, TCP), (8443, PASSED)]
    edge = {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "edge", "namespace": "shop", "labels": {"app": "edge", **label}},
        "spec": {"gateway": {"publish": [{"port": port, "hostPort": here} for port, here in published]}},
    }
    ports = [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "tcp", "port": 9000},
        {"name": "grpc", "port": 9090},
    ]
    return {
        "edge.yaml": text(edge),
        "app.yaml": text(
            workload("app", control=control, serve="http=8080 namer=9000 grpc=9090"),
            workload("two", control=control, serve="http=8080 namer=9000 grpc=9090", version="v2"),
            workload("away", control=control, serve="http=8080", namespace="far", version="v3"),
            workload("safe", control=control, environment={"PEM": held["tls.key"] + held["tls.crt"]}, **tls_of_its_own),
            workload(
                "strict",
                control=control,
                environment={"PEM": held["tls.key"] + held["tls.crt"], "CALLERS": certificate_pem(CALLERS.certificate)},
                **tls_of_its_own,
            ),
            service("strict", {"name": "https", "port": 443, "targetPort": 8443}),
            workload("known", control=control, environment={"PEM": only_a_uri()}, **tls_of_its_own),
            service("known", {"name": "http", "port": 80, "targetPort": 8443}),
            service(
                "safe",
                {"name": "http", "port": 80, "targetPort": 8443},
                {"name": "tls", "port": 443, "targetPort": 8443},
            ),
            service("app", *ports),
            service("two", *ports),
            service("away", ports[0], namespace="far"),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far", "labels": {"team": "far"}}},
        ),
        "secrets.yaml": text(
            secret("shop-example", "shop.example.com"),
            secret("wild-example", "*.example.org"),
            secret("far-example", "far.example.com", namespace="far"),
        ),
    }


def listener(name="http", port=80, protocol="HTTP", **more):
    return {"name": name, "port": port, "protocol": protocol, **more}


def secure(name, *certificates, hostname="", **more):
    refs = [{"name": each} if isinstance(each, str) else each for each in certificates]
    named = {"hostname": hostname} if hostname else {}
    return listener(name, 443, "HTTPS", tls={"certificateRefs": refs}, **named, **more)


def gateway(*listeners):
    return standard("Gateway", "edge", {"gatewayClassName": "weft", "listeners": list(listeners) or [listener()]})


def route(name, *rules, hosts=(), kind="HTTPRoute", namespace="shop", version="v1", of=(), **parent):
    """`of` has more fields of its parent reference."""
    parents = [{"name": "edge", "namespace": "shop", **parent, **dict(of)}]
    named = {"hostnames": list(hosts)} if hosts else {}
    return standard(kind, name, {"parentRefs": parents, **named, "rules": list(rules)}, namespace, version)


def to(name="app", port=80, path="/", **more):
    """A rule."""
    match = {"matches": [{"path": {"type": "PathPrefix", "value": path}}]} if path != "/" else {}
    return {**match, "backendRefs": [{"name": name, "port": port, **more}]}


async def ask(host, path="/", port=HTTP, *, name="", shown="", header="", body=False):
    """Send a request, over TLS if the server's `name` is given; returns the status or the workload that responded,
    or only a header of the response, or with `body` its whole JSON. `shown` is the client's certificate and key."""
    context = None
    if name:
        context = ssl.create_default_context(cadata=certificate_pem(ROOT))
    if context is not None and shown:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(shown)
            file.flush()
            context.load_cert_chain(file.name)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or None)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    except (OSError, ssl.SSLError, TimeoutError) as error:
        return type(error).__name__
    if not answer:
        return "closed"
    head, _, text = answer.partition(b"\r\n\r\n")
    if header:
        found = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        return next((value for key, value in found if key == header), None)
    status = int(head.split()[1])
    start = text.find(b"{")
    if status != 200 or start < 0:
        return status
    found = json.loads(text[start : text.rindex(b"}") + 1])
    return found if body else found["pod"].rpartition("-")[0]


async def settled(mesh, *documents):
    """Apply documents and wait until every proxy has accepted them and the machine's ports lead to the current
    listeners."""
    await mesh.try_out(*documents)


async def test_a_telemetry_with_targets_logs_at_its_gateway_only(mesh):
    target = {"kind": "Gateway", "group": "gateway.networking.k8s.io", "name": "edge"}
    logged = {
        "apiVersion": "telemetry.istio.io/v1",
        "kind": "Telemetry",
        "metadata": {"name": "logged", "namespace": "shop"},
        "spec": {"targetRefs": [target], "accessLogging": [{"providers": [{"name": "envoy"}]}]},
    }
    await settled(mesh, logged, gateway(), route("shop", to()))
    await eventually(lambda: ask("shop.example.com", "/logged-here"), lambda found: found == "app")

    async def lines(pod):
        said = await weft("logs", "--proxy", pod, "--mesh", mesh.engine.name)
        return [line for line in said.splitlines() if "/logged-here" in line]

    await eventually(lambda: lines("edge"))  # Envoy flushes its log with a delay
    assert not await lines("app")


def outcomes(mesh):
    """Status conditions of routes and listeners, with the standard's reasons."""
    return {
        (each.route.name, told.type): told.reason if not told.holds else True
        for derived in mesh.control.mesh.derived()
        for each in derived.routes
        for told in each.conditions
    }


def listeners(mesh):
    return {
        each.name: ({told.type: told.reason for told in each.conditions}, each.attached)
        for derived in mesh.control.mesh.derived()
        if derived.gateway is not None
        for each in derived.gateway.listeners
    }


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.gatewayClassName",
    "spec.listeners[].name",
    "spec.listeners[].port",
    "spec.listeners[].protocol",
)
@proves("HTTPRoute", "spec.hostnames")
async def test_an_http_route_serves_its_hostnames_on_the_listener_of_its_gateway(mesh):
    await settled(mesh, gateway(), route("app", to("app"), to("two", path="/two"), hosts=["shop.example.com"]))
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com", "/two/x") == "two"
    assert await ask("shop.example.com", "/twofold") == "app"
    assert await ask("other.example.com") == 404
    assert outcomes(mesh) == {("app", "Accepted"): True, ("app", "ResolvedRefs"): True}
    assert listeners(mesh)["http"][1] == 1


async def test_a_headless_service_is_called_at_its_pods_wherever_they_listen(mesh):
    pods = service("pods", {"name": "http", "port": 80, "targetPort": 8080}, clusterIP="None")
    pods["spec"]["selector"] = {"app": "two"}
    await settled(mesh, gateway(), pods, route("app", to("pods"), hosts=["shop.example.com"]))
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "two"


async def test_an_http2_request_to_a_gateway_reaches_a_port_without_a_declared_protocol(mesh):
    plain = service("plain", {"port": 80, "targetPort": 8080})
    plain["spec"]["selector"] = {"app": "two"}
    await settled(mesh, gateway(), plain, route("app", to("plain"), hosts=["shop.example.com"]))
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "two"
    assert await ask_by_http2("127.0.0.1", HTTP, authority="shop.example.com") == 200


async def eventually_answers(host, path="/", port=HTTP, **more):
    not_yet = ("ConnectionRefusedError", "closed", "ConnectionResetError")
    await eventually(
        lambda: ask(host, path, port, **more),
        lambda answer: isinstance(answer, str | int) and answer not in not_yet,
    )


async def test_rules_for_the_narrower_hostname_are_tried_first_and_then_the_wider_ones(mesh):
    await settled(
        mesh,
        gateway(),
        route("wide", to("app", path="/long/path"), to("app", path="/w"), hosts=["*.example.com"]),
        route("near", to("two", path="/long"), hosts=["shop.example.com"]),
    )
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com", "/long/path") == "two"
    assert await ask("shop.example.com", "/w") == "app"
    assert await ask("any.example.com", "/long/path") == "app"
    assert await ask("shop.example.com", "/none") == 404


@proves("Gateway.gateway.networking.k8s.io", "spec.listeners[].hostname")
@proves("HTTPRoute", "spec.parentRefs[].sectionName")
async def test_only_routes_of_the_listener_with_the_most_specific_hostname_handle_a_request(mesh):
    await settled(
        mesh,
        gateway(
            listener("any"), listener("wide", hostname="*.example.com"), listener("near", hostname="shop.example.com")
        ),
        route("any", to("app"), sectionName="any"),
        route("wide", to("two"), sectionName="wide"),
    )
    await eventually_answers("one.example.com")
    assert await ask("one.example.org") == "app"
    assert await ask("one.example.com") == "two"
    assert await ask("shop.example.com") == 404
    await settled(
        mesh, gateway(listener(hostname="shop.example.com")), route("app", to("app"), hosts=["x.example.net"])
    )
    assert outcomes(mesh)[("app", "Accepted")] == "NoMatchingListenerHostname"


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.listeners[].allowedRoutes.namespaces.from",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchLabels",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].key",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].operator",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].values",
    "spec.listeners[].allowedRoutes.kinds[].kind",
    "spec.listeners[].allowedRoutes.kinds[].group",
)
@pytest.mark.parametrize(
    ("allowed", "reason"),
    [
        ({}, "NotAllowedByListeners"),
        ({"namespaces": {"from": "All"}}, True),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "far"}}}}, True),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "near"}}}}, "NotAllowedByListeners"),
        (
            {
                "namespaces": {
                    "from": "Selector",
                    "selector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["far"]}]},
                }
            },
            "NotAllowedByListeners",
        ),
        ({"namespaces": {"from": "All"}, "kinds": [{"kind": "GRPCRoute"}]}, "NotAllowedByListeners"),
        (
            {"namespaces": {"from": "All"}, "kinds": [{"kind": "HTTPRoute", "group": "example.com"}]},
            "NotAllowedByListeners",
        ),
    ],
)
async def test_a_listener_accepts_only_routes_of_the_allowed_kinds_and_namespaces(mesh, allowed, reason):
    await settled(
        mesh,
        gateway(listener(allowedRoutes=allowed)),
        route("far", to("away"), hosts=["far.example.com"], namespace="far"),
    )
    assert outcomes(mesh)[("far", "Accepted")] == reason
    await eventually_answers("far.example.com")
    assert await ask("far.example.com") == ("away" if reason is True else 404)


@proves(
    "ReferenceGrant",
    "spec.from[].group",
    "spec.from[].kind",
    "spec.from[].namespace",
    "spec.to[].group",
    "spec.to[].kind",
    "spec.to[].name",
)
async def test_backends_in_another_namespace_need_a_reference_grant(mesh):
    crossing = route("app", to("away", namespace="far"), hosts=["shop.example.com"])
    await settled(mesh, gateway(), crossing)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == 500
    assert outcomes(mesh)[("app", "ResolvedRefs")] == "RefNotPermitted"
    source = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}
    for target, status in (
        ({"group": "", "kind": "Service", "name": "other"}, 500),
        ({"group": "example.com", "kind": "Service"}, 500),
        ({"group": "", "kind": "Service"}, "away"),
    ):
        grant = standard("ReferenceGrant", "shop", {"from": [source], "to": [target]}, "far", "v1beta1")
        await settled(mesh, gateway(), crossing, grant)
        assert await ask("shop.example.com") == status


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.listeners[].tls.certificateRefs[].name",
    "spec.listeners[].tls.certificateRefs[].kind",
    "spec.listeners[].tls.certificateRefs[].group",
    "spec.listeners[].tls.certificateRefs[].namespace",
)
async def test_each_listener_terminates_tls_with_its_own_certificate(mesh):
    crossing = {"name": "far-example", "namespace": "far"}
    documents = (
        gateway(
            secure("shop", "shop-example", hostname="shop.example.com"),
            secure("wild", "wild-example", hostname="*.example.org"),
            secure("far", crossing, hostname="far.example.com"),
            secure("none", "nothing", hostname="none.example.com"),
            secure("kind", {"name": "wild-example", "kind": "Other"}, hostname="kind.example.org"),
            secure("group", {"name": "wild-example", "group": "example.com"}, hostname="group.example.org"),
        ),
        route("app", to("app"), sectionName="shop"),
        route("two", to("two"), sectionName="wild"),
        route("far", to("app"), sectionName="far"),
        route("kind", to("app"), sectionName="kind"),
        route("group", to("app"), sectionName="group"),
    )
    await settled(mesh, *documents)
    await eventually_answers("shop.example.com", port=HTTPS, name="shop.example.com")
    assert await ask("shop.example.com", port=HTTPS, name="shop.example.com") == "app"
    assert await ask("a.example.org", port=HTTPS, name="a.example.org") == "two"
    for name in ("far.example.com", "kind.example.org", "group.example.org"):
        assert await ask(name, port=HTTPS, name=name) not in ("app", "two", 404, 421)
    told = {name: conditions["ResolvedRefs"] for name, (conditions, _) in listeners(mesh).items()}
    assert told == {
        "shop": "ResolvedRefs", "wild": "ResolvedRefs", "far": "RefNotPermitted", "none": "InvalidCertificateRef",
        "kind": "InvalidCertificateRef", "group": "InvalidCertificateRef",
    }  # fmt: skip
    source = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "shop"}
    target = {"group": "", "kind": "Secret", "name": "far-example"}
    grant = standard("ReferenceGrant", "shop", {"from": [source], "to": [target]}, "far", "v1beta1")
    await settled(mesh, *documents, grant)
    assert await ask("far.example.com", port=HTTPS, name="far.example.com") == "app"


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.tls.frontend.default.validation.caCertificateRefs[].group",
    "spec.tls.frontend.default.validation.caCertificateRefs[].kind",
    "spec.tls.frontend.default.validation.caCertificateRefs[].name",
    "spec.tls.frontend.default.validation.caCertificateRefs[].namespace",
    "spec.tls.frontend.perPort[].port",
    "spec.tls.frontend.perPort[].tls.validation.caCertificateRefs[].group",
    "spec.tls.frontend.perPort[].tls.validation.caCertificateRefs[].kind",
    "spec.tls.frontend.perPort[].tls.validation.caCertificateRefs[].name",
    "spec.tls.frontend.perPort[].tls.validation.caCertificateRefs[].namespace",
)
async def test_a_gateway_admits_only_callers_with_a_certificate_of_the_configured_roots(mesh):
    key = p256()
    other = Signing(ca("another root", key), key, ())
    roots = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "callers", "namespace": "far"},
        "data": {"ca.crt": certificate_pem(other.certificate)},
    }
    source = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "shop"}
    target = {"group": "", "kind": "ConfigMap"}
    grant = standard("ReferenceGrant", "shop", {"from": [source], "to": [target]}, "far", "v1beta1")

    def validated(name, **more):
        reference = {"group": "", "kind": "ConfigMap", "name": name, "namespace": "far", **more}
        return {"validation": {"caCertificateRefs": [reference], "mode": "AllowValidOnly"}}

    def checking(default, *ports):
        made = gateway(secure("shop", "shop-example", hostname="shop.example.com"))
        made["spec"]["tls"] = {"frontend": {"default": default, "perPort": list(ports)}}
        return made

    called = {"port": HTTPS, "name": "shop.example.com"}
    of_others = {"port": 443, "tls": validated("callers")}
    for checked in (checking(validated("callers")), checking(validated("nobody"), of_others)):
        await settled(mesh, checked, roots, grant, route("app", to("app")))
        await eventually_answers("shop.example.com", **called, shown=caller_of(other))
        assert await ask("shop.example.com", **called, shown=caller_of(other)) == "app"
        assert await ask("shop.example.com", **called, shown=caller_of(SIGNING)) != "app"
        assert await ask("shop.example.com", **called) != "app"
    foreign = validated("callers", group="example.com")
    for checked in (
        checking(validated("nobody")),
        checking(foreign),
        checking(validated("callers"), {"port": 443, "tls": foreign}),
    ):
        await settled(mesh, checked, roots, grant, route("app", to("app")))
        assert await ask("shop.example.com", **called, shown=caller_of(other)) != "app"
        assert listeners(mesh)["shop"][0]["Accepted"] == "NoValidCACertificate"


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.tls.frontend.default.validation.mode",
    "spec.tls.frontend.perPort[].tls.validation.mode",
)
@pytest.mark.parametrize("port", (0, 443))
async def test_with_insecure_fallback_all_callers_are_accepted_and_none_is_identified(mesh, port):
    key = p256()
    other = Signing(ca("another root", key), key, ())
    roots = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "callers", "namespace": "shop"},
        "data": {"ca.crt": certificate_pem(other.certificate)},
    }
    reference = {"group": "", "kind": "ConfigMap", "name": "callers"}
    fallback = {"validation": {"caCertificateRefs": [reference], "mode": "AllowInsecureFallback"}}
    frontend = {"default": {}, "perPort": [{"port": port, "tls": fallback}]} if port else {"default": fallback}
    edge = gateway(secure("shop", "shop-example", hostname="shop.example.com"))
    edge["spec"]["tls"] = {"frontend": frontend}
    callers = ("", caller_of(other), caller_of(SIGNING))
    called = {"port": HTTPS, "name": "shop.example.com"}
    await settled(mesh, edge, roots, route("app", to("app")))
    await eventually_answers("shop.example.com", **called)
    assert [await ask("shop.example.com", **called, shown=each) for each in callers] == ["app"] * 3
    for each in callers[1:]:
        forwarded = dict((await ask("shop.example.com", **called, shown=each, body=True))["headers"])
        assert "Cert=" in forwarded["x-forwarded-client-cert"] and "URI=spiffe://ex" not in str(forwarded)
    conditions = {
        told.type: told.reason
        for derived in mesh.control.mesh.derived()
        if derived.gateway is not None
        for told in derived.gateway.conditions
    }
    assert conditions["InsecureFrontendValidationMode"] == "ConfigurationChanged"
    only = {"selector": {"matchLabels": {"app": "edge"}}, "rules": [{"from": [{"source": {"principals": ["*"]}}]}]}
    policy = {**istio("AuthorizationPolicy", "only", only), "apiVersion": "security.istio.io/v1"}
    await settled(mesh, edge, roots, route("app", to("app")), policy)
    await eventually(lambda: ask("shop.example.com", **called), lambda found: found == 403)
    assert [await ask("shop.example.com", **called, shown=each) for each in callers] == [403] * 3
    explained = await weft(
        "explain", "edge", "--to", "https://shop.example.com/", "--mesh", mesh.engine.name, code=None
    )
    assert "does not verify client certificates" in explained
    described = await weft("describe", "pod", "edge", "--mesh", mesh.engine.name)
    assert "Callers may present a certificate, which is not verified" in described


@proves("Gateway.gateway.networking.k8s.io", "spec.listeners[].tls.options")
@pytest.mark.parametrize("mode", ("MUTUAL", "OPTIONAL_MUTUAL"))
async def test_an_option_of_a_listener_requests_client_certificates_of_the_ca_in_its_secret(mesh, mode):
    key = p256()
    other = Signing(ca("another root", key), key, ())
    mutual = secret("mutual", "shop.example.com")
    mutual["type"] = "Opaque"
    mutual["stringData"]["ca.crt"] = certificate_pem(other.certificate)
    listener = secure("shop", "mutual", hostname="shop.example.com")
    listener["tls"]["options"] = {"gateway.istio.io/tls-terminate-mode": mode}
    called = {"port": HTTPS, "name": "shop.example.com"}
    await settled(mesh, gateway(listener), mutual, route("app", to("app")))
    await eventually_answers("shop.example.com", **called, shown=caller_of(other))
    assert await ask("shop.example.com", **called, shown=caller_of(other)) == "app"
    assert await ask("shop.example.com", **called, shown=caller_of(SIGNING)) != "app"
    assert (await ask("shop.example.com", **called) == "app") is (mode == "OPTIONAL_MUTUAL")


def caller_of(signing):
    key, now = p256(), time.time()
    made = make_leaf(signing, key.public_key(), "spiffe://example.com/caller", Validity(now - 60, now + 3600))
    return key_pem(key) + certificate_pem(made)


# Listeners that accept routes of all namespaces, with backends that need a grant.
ANYBODY = {"allowedRoutes": {"namespaces": {"from": "All"}}}
# References that are not to a Gateway or a Service.
STRANGE = [{"group": "example.com"}, {"kind": "Other"}]


def grant_to(kind):
    """Routes of `far` may lead to Services of `shop`."""
    source = {"group": "gateway.networking.k8s.io", "kind": kind, "namespace": "far"}
    target = {"group": "", "kind": "Service"}
    return standard("ReferenceGrant", "far", {"from": [source], "to": [target]}, "shop", "v1beta1")


async def named(port=TCP):
    """The workload that responds on a TCP port."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"who\n")
        said = await asyncio.wait_for(reader.read(200), 20)
        writer.close()
        return said.decode().rpartition("-")[0]
    return ""


@proves(
    "TCPRoute",
    "spec.parentRefs[].name",
    "spec.parentRefs[].namespace",
    "spec.parentRefs[].sectionName",
    "spec.parentRefs[].port",
    "spec.rules[].backendRefs[].name",
    "spec.rules[].backendRefs[].port",
    "spec.rules[].backendRefs[].weight",
    "spec.rules[].backendRefs[].namespace",
)
@pytest.mark.parametrize("parent", [{"sectionName": "tcp"}, {"port": 9000}])
async def test_a_tcp_route_sends_connections_from_its_parent_to_its_backends_by_weight(mesh, parent):
    backends = [{"name": name, "namespace": "shop", "port": 9000} for name in ("two", "app")]
    backends[1]["weight"] = 0
    tcp = route("bytes", {"backendRefs": backends}, kind="TCPRoute", version="v1alpha2", namespace="far", **parent)
    both = gateway(listener("tcp", 9000, "TCP", **ANYBODY), listener("other", 8443, "TCP", **ANYBODY))
    await settled(mesh, both, tcp, grant_to("TCPRoute"))

    def reached(name):
        assert name in ("", "two")
        return name == "two"

    await eventually(named, reached)
    assert {await named() for _ in range(12)} == {"two"}
    assert await named(PASSED) == ""


@proves(
    "TCPRoute",
    "spec.parentRefs[].group",
    "spec.parentRefs[].kind",
    "spec.rules[].backendRefs[].group",
    "spec.rules[].backendRefs[].kind",
)
@pytest.mark.parametrize("strange", STRANGE)
async def test_tcp_routes_with_unknown_parents_or_backend_kinds_forward_nothing(mesh, strange):
    usual = {"name": "app", "port": 9000}
    by = route("by", {"backendRefs": [usual]}, kind="TCPRoute", version="v1alpha2", sectionName="tcp", of=strange)
    to_it = route(
        "to", {"backendRefs": [{**usual, **strange}]}, kind="TCPRoute", version="v1alpha2", sectionName="other"
    )
    good = route("good", to("two"), hosts=["shop.example.com"], sectionName="http")
    both = gateway(listener(), listener("tcp", 9000, "TCP"), listener("other", 8443, "TCP"))
    await settled(mesh, both, by, to_it, good)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "two"
    assert [await named(), await named(PASSED)] == ["", ""]
    assert [listeners(mesh)[name][1] for name in ("tcp", "other")] == [0, 1]


@proves(
    "GRPCRoute", "spec.hostnames", "spec.parentRefs[].namespace", "spec.parentRefs[].sectionName",
    "spec.parentRefs[].port", "spec.rules[].backendRefs[].namespace",
)  # fmt: skip
@pytest.mark.parametrize("parent", [{"sectionName": "http"}, {"port": 80}])
async def test_a_grpc_route_serves_its_hostnames_on_the_listener_that_its_parent_ref_names(mesh, parent):
    rule = {"backendRefs": [{"name": "app", "namespace": "shop", "port": 80}]}
    calls = route("calls", rule, hosts=["calls.example.com"], kind="GRPCRoute", namespace="far", **parent)
    both = gateway(listener(**ANYBODY), listener("other", 9000, **ANYBODY))
    await settled(mesh, both, calls, grant_to("GRPCRoute"))
    await eventually_answers("calls.example.com")
    assert [await ask("calls.example.com", "/e2e.Echo/Said"), await ask("other.example.com")] == ["app", 404]
    await eventually_answers("calls.example.com", port=TCP)
    assert await ask("calls.example.com", "/e2e.Echo/Said", TCP) == 404


async def test_the_older_of_two_route_kinds_gets_the_hostname(mesh):
    calls = standard(
        "GRPCRoute",
        "calls",
        {
            "parentRefs": [{"name": "edge"}],
            "hostnames": ["shop.example.com"],
            "rules": [{"backendRefs": [{"name": "two", "port": 9090}]}],
        },
    )
    calls["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    await settled(mesh, gateway(), calls, route("app", to("app"), hosts=["*.example.com"]))
    assert outcomes(mesh)[("app", "Accepted")] == "Conflicted"
    assert outcomes(mesh)[("calls", "Accepted")] is True


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (listener("second"), "HostnameConflict"),
        (secure("second", "shop-example") | {"port": 80}, "ProtocolConflict"),
        (listener("second", 81, "UDP"), "UnsupportedProtocol"),
    ],
)
async def test_an_invalid_listener_is_reported_in_its_status_and_the_others_serve(mesh, second, reason):
    await settled(mesh, gateway(listener(), second), route("app", to("app"), hosts=["shop.example.com"]))
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "app"
    assert listeners(mesh)["second"][0]["Accepted"] == reason


@proves("GatewayClass", "spec.controllerName")
async def test_a_gateway_whose_class_names_another_controller_is_ignored(mesh):
    theirs = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "weft"}}
    theirs["spec"] = {"controllerName": "example.com/other"}
    app = route("app", to("app"), hosts=["shop.example.com"])
    await settled(mesh, theirs, gateway(), app)
    assert outcomes(mesh) == {}
    assert await ask("shop.example.com") not in ("app", 200)
    await settled(mesh, theirs | {"spec": {"controllerName": "weft.dev/gateway-controller"}}, gateway(), app)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "app"


async def test_a_redirect_names_the_listeners_port_only_where_its_scheme_has_another(mesh):
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "new.example.com"}}
    secured = listener("other", 8443, "HTTPS", tls={"certificateRefs": [{"name": "shop-example"}]})
    await settled(
        mesh, gateway(listener(), secure("shop", "shop-example"), secured), route("app", {"filters": [redirect]})
    )
    await eventually_answers("shop.example.com", port=PASSED, name="shop.example.com")
    for port, name, told in (
        (HTTP, "", "http://new.example.com/"),
        (HTTPS, "shop.example.com", "https://new.example.com/"),
        (PASSED, "shop.example.com", "https://new.example.com:8443/"),
    ):
        assert await ask("shop.example.com", port=port, name=name, header="location") == told


async def test_a_route_that_changes_is_followed(mesh):
    await settled(mesh, gateway(), route("app", to("app"), hosts=["shop.example.com"]))
    await eventually_answers("shop.example.com")
    for name in ("two", "app"):
        await settled(mesh, gateway(), route("app", to(name), hosts=["shop.example.com"]))
        assert await ask("shop.example.com") == name


# The roots that verify backends: the root of these tests.
ROOTS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "roots", "namespace": "shop"},
    "data": {"ca.crt": certificate_pem(ROOT)},
}
BY_ROOTS = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "roots"}]}


def believing(server="safe.example.com", section="", names=(), service="safe", **whom):
    target = {"group": "", "kind": "Service", "name": service, **({"sectionName": section} if section else {})}
    validation = {"hostname": server, **whom, **({"subjectAltNames": list(names)} if names else {})}
    return standard("BackendTLSPolicy", "safe", {"targetRefs": [target], "validation": validation})


@proves(
    "BackendTLSPolicy",
    "spec.targetRefs[].kind",
    "spec.targetRefs[].name",
    "spec.targetRefs[].sectionName",
    "spec.validation.hostname",
    "spec.validation.wellKnownCACertificates",
    "spec.validation.caCertificateRefs[].group",
    "spec.validation.caCertificateRefs[].kind",
    "spec.validation.caCertificateRefs[].name",
    "spec.validation.subjectAltNames[].type",
    "spec.validation.subjectAltNames[].hostname",
)
@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        ({}, "safe"),
        ({"section": "http"}, "safe"),
        ({"section": "tls"}, 503),
        ({"server": "other.example.com"}, 503),
        ({"server": "other.example.com", "names": [{"type": "Hostname", "hostname": "safe.example.com"}]}, "safe"),
        ({"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "nothing"}]}, 503),
        ({"caCertificateRefs": [{"group": "", "kind": "Secret", "name": "roots"}]}, 503),
        ({"caCertificateRefs": [{"group": "example.com", "kind": "ConfigMap", "name": "roots"}]}, 503),
        ({"caCertificateRefs": [], "wellKnownCACertificates": "System"}, 503),
    ],
)
async def test_a_backend_is_called_over_tls_and_verified_by_ca_and_hostname(mesh, policy, answer):
    whom = {**BY_ROOTS, **policy}
    whom = {name: value for name, value in whom.items() if value != []}
    await settled(mesh, gateway(), route("safe", to("safe"), hosts=["shop.example.com"]), ROOTS, believing(**whom))
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == answer


@proves("BackendTLSPolicy", "spec.validation.subjectAltNames[].uri", "spec.validation.subjectAltNames[].type")
@pytest.mark.parametrize(
    ("names", "answer"),
    [
        ([{"type": "URI", "uri": URI}], "known"),
        ([{"type": "URI", "uri": f"{URI}/other"}], 503),
        ([{"type": "URI", "uri": f"{URI}/other"}, {"type": "URI", "uri": URI}], "known"),
        ([], 503),
    ],
)
async def test_a_backend_is_verified_by_the_uri_in_its_certificate(mesh, names, answer):
    policy = believing("known.example.com", names=names, service="known", **BY_ROOTS)
    await settled(mesh, gateway(), route("known", to("known"), hosts=["shop.example.com"]), ROOTS, policy)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == answer


def client_certificate(name, signing, namespace="shop"):
    key, now = p256(), time.time()
    issued = make_leaf(signing, key.public_key(), "spiffe://example.com/edge", Validity(now - 60, now + 3600))
    pair = {"tls.crt": certificate_pem(issued), "tls.key": key_pem(key)}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "stringData": pair}


def presenting(**reference):
    edge = gateway()
    edge["spec"]["tls"] = {"backend": {"clientCertificateRef": reference}}
    return edge


def resolved(mesh):
    """The reason of the Gateway's ResolvedRefs condition."""
    (reason,) = (
        told.reason
        for derived in mesh.control.mesh.derived()
        if derived.gateway is not None
        for told in derived.gateway.conditions
        if told.type == "ResolvedRefs"
    )
    return reason


EXTRA = {"kind": "ListenerSet", "group": "gateway.networking.k8s.io", "name": "extra"}
# allowedListeners of a Gateway, and whether it then allows ListenerSets of the namespace `far`.
ALLOWED = [
    ({"from": "All"}, True),
    ({"from": "Selector", "selector": {"matchLabels": {"team": "far"}}}, True),
    ({"from": "Selector", "selector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}, False),
    (
        {"from": "Selector", "selector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["far"]}]}},
        True,
    ),
    ({"from": "Same"}, False),
    ({"from": "None"}, False),
]


def extra(*listeners, namespace="far", name="extra", **parent):
    reference = {"name": "edge", "namespace": "shop", **parent}
    return standard("ListenerSet", name, {"parentRef": reference, "listeners": list(listeners)}, namespace)


def open_to(namespaces, *listeners):
    edge = gateway(*listeners)
    edge["spec"]["allowedListeners"] = {"namespaces": namespaces}
    return edge


def sets(mesh):
    """The conditions of each ListenerSet and of its listeners, with the standard's reasons."""
    return {
        each.listener_set.name: (
            {told.type: told.reason for told in each.conditions},
            {one.name: ({told.type: told.reason for told in one.conditions}, one.attached) for one in each.listeners},
        )
        for derived in mesh.control.mesh.derived()
        for each in derived.listener_sets
    }


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.allowedListeners.namespaces.from",
    "spec.allowedListeners.namespaces.selector.matchLabels",
    "spec.allowedListeners.namespaces.selector.matchExpressions[].key",
    "spec.allowedListeners.namespaces.selector.matchExpressions[].operator",
    "spec.allowedListeners.namespaces.selector.matchExpressions[].values",
)
@proves(
    "ListenerSet",
    "spec.parentRef.group",
    "spec.parentRef.kind",
    "spec.parentRef.name",
    "spec.parentRef.namespace",
    "spec.listeners[].name",
    "spec.listeners[].port",
    "spec.listeners[].protocol",
    "spec.listeners[].hostname",
)
@pytest.mark.parametrize(("namespaces", "allowed"), ALLOWED)
async def test_a_gateway_serves_the_listeners_of_the_listener_sets_that_it_allows(mesh, namespaces, allowed):
    far = extra(listener(hostname="far.example.com"), kind="Gateway", group="gateway.networking.k8s.io")
    documents = (open_to(namespaces, listener(hostname="shop.example.com")), far)
    routes = (
        route("shop", to("app")),
        route("far", to("away", 80), namespace="far", of={**EXTRA, "namespace": "far"}),
    )
    await settled(mesh, *documents, *routes)
    await eventually(lambda: ask("shop.example.com"), lambda found: found == "app")
    await eventually(lambda: ask("far.example.com"), lambda found: found == ("away" if allowed else 404))
    conditions, listed = sets(mesh)["extra"]
    if allowed:
        assert conditions == {"Accepted": "Accepted", "Programmed": "Programmed"}
        assert listed["http"][0]["Programmed"] == "Programmed" and listed["http"][1] == 1
        assert outcomes(mesh)[("far", "Accepted")] is True
    else:
        assert conditions == {"Accepted": "NotAllowed", "Programmed": "NotAllowed"}
        assert outcomes(mesh)[("far", "Accepted")] == "NoMatchingParent"
    assert listeners(mesh)["http"][1] == 1  # the Gateway's own listener has its own route only


async def test_routes_are_attached_to_the_gateway_or_to_its_listener_set_as_their_parent_refs_say(mesh):
    edge = open_to({"from": "Same"}, listener("own", hostname="shop.example.com"))
    documents = (edge, extra(listener("more", hostname="more.example.com"), namespace="shop"))
    both = route("both", to("app", path="/both"))
    both["spec"]["parentRefs"].append({**EXTRA, "namespace": "shop"})
    await settled(
        mesh,
        *documents,
        both,
        route("set", to("two", path="/set"), of=EXTRA),
        route("section", to("two", path="/section"), of=EXTRA, sectionName="more", port=80),
        route("wrong", to("two", path="/wrong"), sectionName="more"),
    )
    await eventually(lambda: ask("more.example.com", "/set"), lambda found: found == "two")
    asked = [(host, path) for host in ("shop", "more") for path in ("/both", "/set", "/section", "/wrong")]
    assert [await ask(f"{host}.example.com", path) for host, path in asked] == [
        "app", 404, 404, 404, "app", "two", "two", 404,
    ]  # fmt: skip
    assert outcomes(mesh)[("wrong", "Accepted")] == "NoMatchingParent"
    assert sets(mesh)["extra"][1]["more"][1] == 3 and listeners(mesh)["own"][1] == 1
    described = await weft("describe", "pod", "edge", "--mesh", mesh.engine.name)
    assert "ListenerSet shop/extra" in described and "listener more" in described
    explained = await weft("explain", "edge", "--to", "http://more.example.com/set", "--mesh", mesh.engine.name)
    assert "HTTPRoute shop/set" in explained


@proves(
    "ListenerSet",
    "spec.listeners[].allowedRoutes.namespaces.from",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchLabels",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].key",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].operator",
    "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].values",
    "spec.listeners[].allowedRoutes.kinds[].group",
    "spec.listeners[].allowedRoutes.kinds[].kind",
)
@pytest.mark.parametrize(
    ("allowed", "answer"),
    [
        ({}, "away"),
        ({"namespaces": {"from": "Same"}}, "away"),
        ({"namespaces": {"from": "None"}}, 404),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "near"}}}}, 404),
        ({"namespaces": {"from": "Selector", "selector": {"matchExpressions": [
            {"key": "team", "operator": "In", "values": ["far"]}]}}}, "away"),
        ({"kinds": [{"kind": "GRPCRoute", "group": "gateway.networking.k8s.io"}]}, 404),
        ({"kinds": [{"kind": "HTTPRoute"}]}, "away"),
    ],
)  # fmt: skip
async def test_a_listener_of_a_listener_set_allows_routes_by_its_own_namespace_and_kinds(mesh, allowed, answer):
    far = extra(listener(hostname="far.example.com", allowedRoutes=allowed))
    documents = (open_to({"from": "All"}, listener(hostname="shop.example.com")), far, route("shop", to("app")))
    # Allowed only if the listener allows routes of the Gateway's namespace: Same is the namespace of the ListenerSet.
    near = route("near", to("app", path="/near"), of={**EXTRA, "namespace": "far"})
    away = route("far", to("away", 80), namespace="far", of={**EXTRA, "namespace": "far"})
    await settled(mesh, *documents, near, away)
    await eventually(lambda: ask("shop.example.com"), lambda found: found == "app")
    await eventually(lambda: ask("far.example.com"), lambda found: found == answer)
    assert outcomes(mesh)[("near", "Accepted")] == "NotAllowedByListeners"


@proves(
    "ListenerSet",
    "spec.listeners[].tls.mode",
    "spec.listeners[].tls.certificateRefs[].group",
    "spec.listeners[].tls.certificateRefs[].kind",
    "spec.listeners[].tls.certificateRefs[].name",
    "spec.listeners[].tls.certificateRefs[].namespace",
    "spec.listeners[].tls.options",
)
async def test_a_listener_set_terminates_tls_with_certificates_of_its_own_namespace_or_granted_ones(mesh):
    edge = open_to({"from": "All"}, secure("shop", "shop-example", hostname="shop.example.com"))
    there = {"of": {**EXTRA, "namespace": "far"}, "namespace": "far"}
    routes = (route("app", to("app")), route("far", to("away", 80), **there))
    await settled(mesh, edge, extra(secure("far", "far-example", hostname="far.example.com")), *routes)
    called = {"port": HTTPS, "name": "far.example.com"}
    await eventually(lambda: ask("far.example.com", **called), lambda found: found == "away")
    assert await ask("shop.example.com", port=HTTPS, name="shop.example.com") == "app"
    reference = {"name": "shop-example", "namespace": "shop", "kind": "Secret", "group": ""}
    borrowing = extra(secure("far", reference, hostname="shop.example.org", allowedRoutes={}))
    borrowing["spec"]["listeners"][0]["hostname"] = "shop.example.com"
    bare = open_to({"from": "All"}, listener())
    await settled(mesh, bare, borrowing, *routes)
    called = {"port": HTTPS, "name": "shop.example.com"}
    await eventually(lambda: ask("shop.example.com", **called), lambda found: found != "away")
    assert sets(mesh)["extra"][0] == {"Accepted": "ListenersNotValid", "Programmed": "ListenersNotValid"}
    assert sets(mesh)["extra"][1]["far"][0]["ResolvedRefs"] == "RefNotPermitted"
    source = {"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "namespace": "far"}
    grant = standard(
        "ReferenceGrant", "far", {"from": [source], "to": [{"group": "", "kind": "Secret"}]}, "shop", "v1beta1"
    )
    await settled(mesh, bare, borrowing, grant, *routes)
    await eventually(lambda: ask("shop.example.com", **called), lambda found: found == "away")
    mutual = {**secret("mutual", "far.example.com", namespace="far"), "type": "Opaque"}
    mutual["stringData"]["ca.crt"] = certificate_pem(CALLERS.certificate)
    asking = secure("far", "mutual", hostname="far.example.com")
    asking["tls"] |= {"mode": "Terminate", "options": {"gateway.istio.io/tls-terminate-mode": "MUTUAL"}}
    await settled(mesh, bare, extra(asking), mutual, *routes)
    called = {"port": HTTPS, "name": "far.example.com"}
    await eventually(lambda: ask("far.example.com", **called, shown=caller_of(CALLERS)), lambda found: found == "away")
    assert await ask("far.example.com", **called) != "away"


async def test_the_gateway_and_the_older_listener_set_have_precedence_in_a_conflict(mesh):
    edge = open_to({"from": "All"}, listener(hostname="shop.example.com"))
    first = extra(
        listener("a", hostname="shop.example.com"),
        listener("b", hostname="b.example.com"),
        listener("c", 443, "TCP"),
        name="first",
    )
    second = extra(listener("d", hostname="b.example.com"), listener("e", 80, "TCP"), name="second")
    there = {"namespace": "far", "of": {**EXTRA, "namespace": "far", "name": "second"}}
    mine = {"namespace": "far", "of": {**EXTRA, "namespace": "far", "name": "first"}}
    routes = (
        route("app", to("app")),
        route("first", to("away", 80), **mine),
        route("second", to("nobody", 80), **there),
    )
    await settled(mesh, edge, first, second, *routes)
    await eventually(lambda: ask("b.example.com"), lambda found: found == "away")
    assert await ask("shop.example.com") == "app"
    conditions, listed = sets(mesh)["first"]
    assert conditions == {"Accepted": "ListenersNotValid", "Programmed": "Programmed"}
    assert {name: each[0]["Conflicted"] for name, each in listed.items()} == {
        "a": "HostnameConflict", "b": "NoConflicts", "c": "NoConflicts",
    }  # fmt: skip
    assert listed["a"][0]["Programmed"] == "HostnameConflict"
    conditions, listed = sets(mesh)["second"]
    assert conditions == {"Accepted": "ListenersNotValid", "Programmed": "ListenersNotValid"}
    assert {name: each[0]["Conflicted"] for name, each in listed.items()} == {
        "d": "HostnameConflict", "e": "ProtocolConflict",
    }  # fmt: skip


@proves(
    "Gateway.gateway.networking.k8s.io",
    "spec.tls.backend.clientCertificateRef.group",
    "spec.tls.backend.clientCertificateRef.kind",
    "spec.tls.backend.clientCertificateRef.name",
    "spec.tls.backend.clientCertificateRef.namespace",
)
async def test_a_gateway_presents_its_client_certificate_to_backends_with_a_tls_policy(mesh):
    roots = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "roots", "namespace": "shop"},
        "data": {"ca.crt": certificate_pem(ROOT)},
    }
    trusted = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "roots"}]}
    policies = (believing(service="strict", **trusted), roots)
    documents = (route("app", to("strict", 443)), *policies)
    shown = client_certificate("shown", CALLERS)
    await settled(mesh, gateway(), *documents)
    await eventually(lambda: ask("shop.example.com"), lambda found: found == 503)
    assert resolved(mesh) == "ResolvedRefs"
    await settled(mesh, presenting(name="shown"), shown, *documents)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "strict"
    assert resolved(mesh) == "ResolvedRefs"
    cluster = "outbound|443||strict.shop.svc.cluster.local"
    assert "tls-by-policy" in await weft("why", "edge", "cluster", cluster, "--mesh", mesh.engine.name)
    why = await weft("why", "edge", "secret", f"{cluster}/certificate", "--mesh", mesh.engine.name)
    assert "client-certificate" in why and "Secret shop/shown" in why and "shop/edge tls.backend" in why
    # Another certificate is used as soon as the Secret changes, and without any the backend is not called.
    await settled(mesh, presenting(name="shown"), client_certificate("shown", SIGNING), *documents)
    await eventually(lambda: ask("shop.example.com"), lambda found: found == 503)
    await settled(mesh, presenting(name="shown"), shown, *documents)
    await eventually_answers("shop.example.com")
    for wrong, reason in (
        ({"name": "nobody"}, "InvalidClientCertificateRef"),
        ({"name": "shown", "group": "example.com"}, "InvalidClientCertificateRef"),
        ({"name": "shown", "kind": "ConfigMap"}, "InvalidClientCertificateRef"),
        ({"name": "shown", "namespace": "far"}, "RefNotPermitted"),
    ):
        far = client_certificate("shown", CALLERS, "far")
        await settled(mesh, presenting(**wrong), shown, far, *documents)
        await eventually(lambda: ask("shop.example.com"), lambda found: found == 503)
        assert resolved(mesh) == reason
        why = await weft("why", "edge", "cluster", f"{cluster}.type", "--mesh", mesh.engine.name)
        assert "without-client-certificate" in why
        explained = await weft(
            "explain", "edge", "--to", "http://shop.example.com/", "--mesh", mesh.engine.name, code=None
        )
        assert "client certificate" in explained
    source = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "shop"}
    target = {"group": "", "kind": "Secret", "name": "shown"}
    grant = standard("ReferenceGrant", "shop", {"from": [source], "to": [target]}, "far", "v1beta1")
    await settled(mesh, presenting(name="shown", namespace="far"), far, grant, *documents)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "strict"


@pytest.mark.parametrize("kind", ["TCPRoute", "TLSRoute"])
async def test_the_share_of_connections_for_a_missing_backend_is_closed(mesh, kind):
    """They go to no other backend."""
    rule = {"backendRefs": [{"name": "safe", "port": 443}, {"name": "nobody", "port": 443}]}
    hosts = {"hosts": ["safe.example.com"]} if kind == "TLSRoute" else {}
    split = route("safe", rule, kind=kind, version="v1alpha2", **hosts)
    passed = listener("tls", 8443, "TLS", tls={"mode": "Passthrough"})
    plain = listener("tcp", 8443, "TCP")
    await settled(mesh, gateway(passed if kind == "TLSRoute" else plain), split)

    async def answered():
        return await ask("safe.example.com", port=PASSED, name="safe.example.com")

    await eventually(answered, lambda value: value == "safe")
    found = [await answered() for _ in range(60)]
    assert set(found) - {"safe"} <= {"ConnectionResetError", "closed", "SSLEOFError", "SSLError"}, found
    assert 15 <= found.count("safe") <= 45, found
    rule["backendRefs"].pop(0)
    await settled(mesh, gateway(passed if kind == "TLSRoute" else plain), split)
    assert "safe" not in [await answered() for _ in range(5)]


@proves("Gateway.gateway.networking.k8s.io", "spec.listeners[].tls.mode")
@proves(
    "TLSRoute",
    "spec.parentRefs[].name",
    "spec.parentRefs[].namespace",
    "spec.parentRefs[].sectionName",
    "spec.parentRefs[].port",
    "spec.hostnames",
    "spec.rules[].backendRefs[].name",
    "spec.rules[].backendRefs[].port",
    "spec.rules[].backendRefs[].weight",
    "spec.rules[].backendRefs[].namespace",
)
@pytest.mark.parametrize("parent", [{"sectionName": "tls"}, {"port": 8443}])
async def test_a_tls_route_sends_passthrough_tls_for_its_hostnames_from_its_parent_to_its_backends(mesh, parent):
    backends = [{"name": name, "namespace": "shop", "port": port} for name, port in (("safe", 443), ("app", 80))]
    backends[1]["weight"] = 0
    where = {"kind": "TLSRoute", "version": "v1alpha2", "namespace": "far", **parent}
    unopened = {"tls": {"mode": "Passthrough"}, **ANYBODY}
    both = gateway(listener("tls", 8443, "TLS", **unopened), listener("other", 443, "TLS", **unopened))

    async def passed_on(host):
        await settled(mesh, both, route("safe", {"backendRefs": backends}, hosts=[host], **where), grant_to("TLSRoute"))

    called = {"port": PASSED, "name": "safe.example.com"}
    await passed_on("safe.example.com")
    await eventually_answers("safe.example.com", **called)
    assert {await ask("safe.example.com", **called) for _ in range(12)} == {"safe"}
    assert await ask("safe.example.com", port=HTTPS, name="safe.example.com") != "safe"
    assert listeners(mesh)["tls"][1] == 1
    await passed_on("other.example.com")
    assert await ask("safe.example.com", **called) != "safe"


@proves(
    "TLSRoute",
    "spec.parentRefs[].group",
    "spec.parentRefs[].kind",
    "spec.rules[].backendRefs[].group",
    "spec.rules[].backendRefs[].kind",
)
@pytest.mark.parametrize("strange", STRANGE)
async def test_tls_routes_with_unknown_parents_or_backend_kinds_forward_nothing(mesh, strange):
    usual = {"name": "safe", "port": 443}
    more = {"kind": "TLSRoute", "version": "v1alpha2", "hosts": ["safe.example.com"]}
    by = route("by", {"backendRefs": [usual]}, sectionName="tls", of=strange, **more)
    to_it = route("to", {"backendRefs": [{**usual, **strange}]}, sectionName="other", **more)
    good = route("good", to("two"), hosts=["shop.example.com"], sectionName="http")
    unopened = {"tls": {"mode": "Passthrough"}}
    both = gateway(listener(), listener("tls", 8443, "TLS", **unopened), listener("other", 443, "TLS", **unopened))
    await settled(mesh, both, by, to_it, good)
    await eventually_answers("shop.example.com")
    assert await ask("shop.example.com") == "two"
    for port in (PASSED, HTTPS):
        assert await ask("safe.example.com", port=port, name="safe.example.com") != "safe"
    assert [listeners(mesh)[name][1] for name in ("tls", "other")] == [0, 1]


async def test_passthrough_to_a_backend_with_a_tls_policy_is_tls_in_tls(mesh):
    """The standard permits it: the policy applies whatever the listener does with TLS. So it is detected and
    reported."""
    rule = {"backendRefs": [{"name": "safe", "port": 443}]}
    passed = route("safe", rule, hosts=["safe.example.com"], kind="TLSRoute", version="v1alpha2")
    tls = gateway(listener("tls", 8443, "TLS", tls={"mode": "Passthrough"}))

    async def told():
        return await weft("explain", "edge", "-n", "shop", "--to", "https://safe.example.com:8443/", both=True)

    await settled(mesh, tls, passed, ROOTS, believing(section="http", **BY_ROOTS))
    await eventually_answers("safe.example.com", port=PASSED, name="safe.example.com")
    assert await ask("safe.example.com", port=PASSED, name="safe.example.com") == "safe"
    assert "TLS inside TLS" not in await told()
    await settled(mesh, tls, passed, ROOTS, believing(**BY_ROOTS))
    assert await ask("safe.example.com", port=PASSED, name="safe.example.com") in ("SSLError", "SSLEOFError")
    words = await told()
    assert ":8443 gets TLS inside TLS  [Service shop/safe" in words
    assert "BackendTLSPolicy shop/safe" in words and "\n→ closed: the caller's TLS handshake fails" in words
    await eventually(lambda: any("[WFT0224]" in each for each in mesh.problems()))
    assert "BackendTLSPolicy shop/safe: spec: warning [WFT0224]: TLS for port 443 of safe." in await told()


async def test_terminated_tls_is_forwarded_as_tcp(mesh):
    tls = {"certificateRefs": [{"name": "shop-example"}]}
    rule = {"backendRefs": [{"name": "app", "port": 80}]}
    bytes_on = route("bytes", rule, kind="TCPRoute", version="v1alpha2")
    await settled(mesh, gateway(listener("tls", 8443, "TLS", tls=tls)), bytes_on)
    await eventually_answers("shop.example.com", port=PASSED, name="shop.example.com")
    assert await ask("any.example.com", port=PASSED, name="shop.example.com") == "app"
