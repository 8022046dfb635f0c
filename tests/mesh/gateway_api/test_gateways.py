import pytest

from api.reading import document
from weft.api.parse import parse
from weft.mesh.mesh import Mesh
from weft.model.gateway import ServerTlsMode
from weft.model.gateway_api import AuthorityBundle
from weft.model.names import ObjectKey

GROUP = "gateway.networking.k8s.io"
SERVICE = """
    apiVersion: v1
    kind: Service
    metadata: {name: web, namespace: shop}
    spec: {selector: {app: web}, clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
    """


def gateway(*listeners, class_name="weft"):
    return f"""
    apiVersion: {GROUP}/v1
    kind: Gateway
    metadata: {{name: edge, namespace: shop}}
    spec: {{gatewayClassName: {class_name}, listeners: [{", ".join(listeners)}]}}
    """


def route(name, *paths, hosts="", section="", kind="HTTPRoute", namespace="shop"):
    matches = ", ".join(f"{{path: {{value: {path}}}}}" for path in paths)
    rule = f"matches: [{matches}], " if paths else ""
    parent = f"name: edge, namespace: shop{f', sectionName: {section}' if section else ''}"
    return f"""
    apiVersion: {GROUP}/v1
    kind: {kind}
    metadata: {{name: {name}, namespace: {namespace}}}
    spec:
      parentRefs: [{{{parent}}}]
      {f"hostnames: [{hosts}]" if hosts else ""}
      rules: [{{{rule}backendRefs: [{{name: web, namespace: shop, port: 80}}]}}]
    """


def derived(*texts):
    mesh = Mesh()
    for read in map(document, texts):
        parsed = parse(read)
        assert [str(each) for each in parsed.problems] == []
        mesh.apply(read.key, parsed.values)
    (found,) = [each for each in mesh.derived() if each.gateway is not None]
    return found


def routings(found):
    """By gateway and host: the names of the routes in their order, or what answers."""
    return {
        (each.gateways[0].partition("~")[2], each.hosts[0]): [
            http.origin.key.name if http.origin else http.direct_response.status for http in each.http
        ]
        for each in found.routings
    }


def accepted(found):
    return {each.route.name: each.conditions[0].reason for each in found.routes}


HTTP = "{name: http, port: 80, protocol: HTTP}"


def test_each_listener_is_a_gateway_of_its_own_for_proxies_of_the_namespace():
    tls = "{name: s, port: 443, protocol: HTTPS, hostname: a.b, tls: {certificateRefs: [{name: cert}]}}"
    plain, secure = derived(SERVICE, gateway(HTTP, tls)).gateways
    assert (plain.key, plain.within, plain.selector) == ("shop/edge~http", "shop", ((f"{GROUP}/gateway-name", "edge"),))
    assert (plain.servers[0].hosts, secure.servers[0].hosts) == (("*",), ("a.b",))
    assert secure.servers[0].tls.mode is ServerTlsMode.SIMPLE
    assert [(each.namespace, each.name) for each in secure.servers[0].tls.credentials] == [("shop", "cert")]


def test_every_hostname_has_all_rules_that_cover_it_the_nearest_first():
    found = derived(
        SERVICE,
        gateway(HTTP),
        route("any", "/long/path"),
        route("wide", "/longer", hosts="'*.a.b'"),
        route("near", "/", hosts="x.a.b"),
    )
    assert routings(found) == {
        ("http", "*"): ["any"],
        ("http", "*.a.b"): ["wide", "any"],
        ("http", "x.a.b"): ["near", "wide", "any"],
    }


def test_only_the_most_specific_listener_handles_a_request():
    found = derived(
        SERVICE,
        gateway(HTTP, "{name: near, port: 80, protocol: HTTP, hostname: '*.a.b'}"),
        route("any", section="http", hosts="'*.a.b', x.a.b, c.d"),
        route("near", section="near", hosts="x.a.b"),
    )
    assert routings(found) == {("http", "c.d"): ["any"], ("near", "x.a.b"): ["near"], ("near", "*.a.b"): [404]}
    assert accepted(found) == {"any": "Accepted", "near": "Accepted"}


@pytest.mark.parametrize(
    ("listener", "wanted", "reason"),
    [
        (HTTP, route("a", section="none"), "NoMatchingParent"),
        (HTTP, route("a", namespace="far"), "NotAllowedByListeners"),
        (
            "{name: http, port: 80, protocol: HTTP, hostname: a.b}",
            route("a", hosts="c.d"),
            "NoMatchingListenerHostname",
        ),
        ("{name: tcp, port: 80, protocol: TCP}", route("a"), "NotAllowedByListeners"),
        ("{name: dns, port: 53, protocol: UDP}", route("a"), "NotAllowedByListeners"),
    ],
)
def test_a_route_that_is_not_accepted_has_the_reason(listener, wanted, reason):
    found = derived(SERVICE, gateway(listener), wanted)
    assert accepted(found) == {"a": reason}
    assert found.routings == ()
    assert [each.attached for each in found.gateway.listeners] == [0]


def test_the_first_of_two_conflicting_listeners_serves():
    found = derived(
        SERVICE, gateway(HTTP, "{name: again, port: 80, protocol: HTTP}", "{name: b, port: 80, protocol: TCP}")
    )
    told = [
        {each.type: each.reason for each in listener.conditions if each.type in ("Accepted", "Conflicted")}
        for listener in found.gateway.listeners
    ]
    assert told == [
        {"Accepted": "Accepted", "Conflicted": "NoConflicts"},
        {"Accepted": "HostnameConflict", "Conflicted": "HostnameConflict"},
        {"Accepted": "ProtocolConflict", "Conflicted": "ProtocolConflict"},
    ]
    assert [each.name for each in found.gateways] == ["edge~http"]
    assert found.gateway.conditions[0].reason == "ListenersNotValid"


def test_unsupported_kinds_of_a_listener_are_reported_and_the_others_allowed():
    wanted = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: TCPRoute}]}}"
    (listener,) = derived(SERVICE, gateway(wanted), route("a")).gateway.listeners
    assert {each.type: each.reason for each in listener.conditions}["ResolvedRefs"] == "InvalidRouteKinds"
    assert (listener.kinds, listener.attached) == (("HTTPRoute",), 1)


def test_a_listener_with_only_unknown_kinds_accepts_no_route():
    wanted = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{group: example.com, kind: OtherRoute}]}}"
    found = derived(SERVICE, gateway(wanted), route("a"))
    (listener,) = found.gateway.listeners
    assert (listener.kinds, listener.attached) == ((), 0)
    assert {each.type: each.reason for each in listener.conditions}["ResolvedRefs"] == "InvalidRouteKinds"
    assert found.routes[0].conditions[0].reason == "NotAllowedByListeners"
    assert found.routings == ()


def test_a_listener_on_a_reserved_port_is_not_accepted():
    found = derived(SERVICE, gateway("{name: http, port: 15021, protocol: HTTP}"))
    (listener,) = found.gateway.listeners
    told = {each.type: (each.holds, each.reason) for each in listener.conditions}
    assert (told["Accepted"], told["Programmed"]) == ((False, "PortUnavailable"), (False, "Invalid"))
    assert found.gateways == ()


def test_nothing_is_derived_from_another_controllers_gateway():
    mesh = Mesh()
    for read in map(document, (SERVICE, gateway(HTTP, class_name="other"), route("a"))):
        mesh.apply(read.key, parse(read).values)
    (derived,) = mesh.derived()
    assert derived.values == () and derived.gateway is None
    assert [each.ours for each in derived.routes] == [False]  # told as findings, in nobody's status


SECURE = "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: shown}]}}"


def checked(reference, *values):
    """A Gateway whose callers must have certificates, and a listener of plain HTTP."""
    listeners = f"[{SECURE}, {{name: http, port: 80, protocol: HTTP}}]"
    text = f"""
    apiVersion: {GROUP}/v1
    kind: Gateway
    metadata: {{name: edge, namespace: shop}}
    spec:
      gatewayClassName: weft
      tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{reference}]}}}}}}}}
      listeners: {listeners}
    """
    mesh = Mesh()
    read = document(text)
    mesh.apply(read.key, parse(read).values)
    for number, each in enumerate(values):
        mesh.apply(ObjectKey("ConfigMap", each.namespace, f"{each.name}-{number}"), (each,))
    (found,) = [each for each in mesh.derived() if each.gateway is not None]
    return found


def test_client_certificates_are_required_at_https_listeners():
    found = checked('{group: "", kind: ConfigMap, name: callers}', AuthorityBundle("callers", "shop", "PEM"))
    tls = {each.servers[0].name: each.servers[0].tls for each in found.gateways}
    assert (tls["https"].mode, tls["https"].roots, tls["http"]) == (ServerTlsMode.MUTUAL, "PEM", None)


@pytest.mark.parametrize(
    ("mode", "option", "expected"),
    [
        ("AllowValidOnly", "", (ServerTlsMode.MUTUAL, False)),
        ("AllowValidOnly", "SIMPLE", (ServerTlsMode.MUTUAL, False)),
        ("AllowValidOnly", "OPTIONAL_MUTUAL", (ServerTlsMode.MUTUAL, False)),
        ("AllowValidOnly", "MUTUAL", (ServerTlsMode.MUTUAL, False)),
        ("AllowInsecureFallback", "", (ServerTlsMode.OPTIONAL_MUTUAL, True)),
        ("AllowInsecureFallback", "OPTIONAL_MUTUAL", (ServerTlsMode.OPTIONAL_MUTUAL, False)),
        ("AllowInsecureFallback", "MUTUAL", (ServerTlsMode.MUTUAL, False)),
    ],
)
def test_a_listener_set_cannot_weaken_the_check_of_client_certificates_of_its_gateway(mode, option, expected):
    edge = f"""
    apiVersion: {GROUP}/v1
    kind: Gateway
    metadata: {{name: edge, namespace: shop}}
    spec:
      gatewayClassName: weft
      allowedListeners: {{namespaces: {{from: All}}}}
      tls:
        frontend:
          default:
            validation: {{mode: {mode}, caCertificateRefs: [{{group: "", kind: ConfigMap, name: callers}}]}}
      listeners: [{HTTP}]
    """
    options = f", options: {{gateway.istio.io/tls-terminate-mode: {option}}}" if option else ""
    more = f"""
    apiVersion: {GROUP}/v1
    kind: ListenerSet
    metadata: {{name: more, namespace: far}}
    spec:
      parentRef: {{name: edge, namespace: shop}}
      listeners: [{SECURE.replace("}]}", f"}}]{options}}}")}]
    """
    mesh = Mesh()
    for read in map(document, (edge, more)):
        parsed = parse(read)
        assert [str(each) for each in parsed.problems] == []
        mesh.apply(read.key, parsed.values)
    mesh.apply(ObjectKey("ConfigMap", "shop", "callers"), (AuthorityBundle("callers", "shop", "PEM"),))
    (found,) = [each for each in mesh.derived() if each.gateway is not None]
    (tls,) = [each.servers[0].tls for each in found.gateways if each.servers[0].name == "https"]
    assert (tls.mode, tls.unverified, tls.roots) == (*expected, "PEM")


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ('{group: "", kind: ConfigMap, name: nowhere}', "InvalidCACertificateRef"),
        ('{group: "", kind: Secret, name: callers}', "InvalidCACertificateKind"),
        ('{group: "", kind: ConfigMap, name: callers, namespace: far}', "RefNotPermitted"),
    ],
)
def test_without_valid_ca_certificates_a_listener_rejects_clients_and_others_serve(reference, reason):
    found = checked(reference, AuthorityBundle("callers", "shop", "PEM"), AuthorityBundle("callers", "far", "PEM"))
    told = {
        each.name: {one.type: (one.holds, one.reason) for one in each.conditions} for each in found.gateway.listeners
    }
    assert told["https"]["ResolvedRefs"] == (False, reason)
    assert told["https"]["Accepted"] == (False, "NoValidCACertificate")
    assert not told["https"]["Programmed"][0]
    assert told["http"]["Programmed"][0]
    (secure,) = [each.servers[0].tls for each in found.gateways if each.servers[0].name == "https"]
    assert secure.credentials == ()  # so it closes
