import pytest
from msgspec.structs import replace

from api.gateway_api.objects import standard
from api.reading import told, value
from weft.model.gateway_api import AllowedNamespaces, CertificateRef, From, LabelRequirement, Listener


def gateway(listener, more=""):
    return standard("Gateway", f"gatewayClassName: weft\nlisteners:\n  - {listener}{more}")


def test_a_listener_is_read():
    found = value(
        gateway(
            "{name: https, port: 443, protocol: HTTPS, hostname: A.b, tls: {certificateRefs: [{name: s}, "
            "{name: t, namespace: far}]}, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}, "
            "matchExpressions: [{key: c, operator: Exists}]}}, kinds: [{kind: HTTPRoute}, {kind: UDPRoute}]}}"
        )
    )
    assert (found.class_name, found.key.kind) == ("weft", "Gateway.gateway.networking.k8s.io")
    assert found.listeners == (
        Listener(
            "https",
            443,
            "HTTPS",
            "a.b",
            certificates=(CertificateRef("shop", "s"), CertificateRef("far", "t")),
            namespaces=AllowedNamespaces(From.SELECTOR, (("a", "b"),), (LabelRequirement("c", "Exists"),)),
            kinds=("HTTPRoute",),
            other_kinds=("UDPRoute",),
            line=7,
        ),
    )


def test_tls_may_be_passed_through():
    found = value(gateway("{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}"))
    assert found.listeners[0].passthrough


@pytest.mark.parametrize(
    ("listener", "problem"),
    [
        ("{name: a, port: 443, protocol: HTTPS}", "7 a listener with the protocol HTTPS needs `tls`"),
        ("{name: a, port: 443, protocol: HTTPS, tls: {}}", "7 `certificateRefs` is required where TLS is terminated"),
        (
            "{name: a, port: 443, protocol: HTTPS, tls: {mode: Passthrough}}",
            "7 a listener with the protocol HTTPS terminates TLS, so its mode cannot be Passthrough (to pass TLS "
            "through, set `protocol: TLS`)",
        ),
        (
            "{name: a, port: 80, protocol: HTTP, tls: {certificateRefs: [{name: s}]}}",
            "7 a listener with the protocol HTTP cannot have `tls` (set `protocol: HTTPS` or `TLS`)",
        ),
        (
            "{name: a, port: 80, protocol: HTTP, hostname: '*'}",
            "7 `*` is not a host name (write a name or `*.example.com`, or leave `hostname` out)",
        ),
        (
            "{name: a, port: 1, protocol: TCP, hostname: a.b}",
            "7 a TCP listener cannot have a `hostname`: TCP has no host names (remove `hostname`)",
        ),
        (
            "{name: a, port: 443, protocol: TLS, tls: {mode: Passthrough, options: {a: b}}}",
            "7 weft does not support the option `a` of a listener's TLS "
            "(remove it; gateway.istio.io/tls-terminate-mode is supported)",
        ),
        (
            "{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector}}}",
            "7 `from: Selector` needs a `selector`",
        ),
        (
            "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: 'a,metadata.name!=b'}]}}",
            "7 `a,metadata.name!=b` is not the name of a Secret (use lower-case letters, digits, - and .)",
        ),
    ],
)
def test_invalid_listeners_are_rejected(listener, problem):
    assert told(gateway(listener)) == [problem]


@pytest.mark.parametrize(
    "field",
    [
        "addresses: [{value: 10.0.0.1}]",
        "addresses: [{type: NamedAddress, value: a}]",
        "infrastructure: {parametersRef: {group: a.b, kind: C, name: d}}",
        "defaultScope: All",
    ],
)
def test_unsupported_fields_of_a_gateway_are_rejected(field):
    found = told(gateway("{name: a, port: 80, protocol: HTTP}", f"\n{field}"))
    assert len(found) == 1 and found[0].startswith("8 weft ")


def test_reads_labels_and_annotations_for_created_objects():
    text = "\ninfrastructure: {labels: {team: shop}, annotations: {example.com/what: a b}}"
    found = value(gateway("{name: a, port: 80, protocol: HTTP}", text))
    assert (found.labels, found.annotations) == ((("team", "shop"),), (("example.com/what", "a b"),))


@pytest.mark.parametrize("key", ["sidecar.istio.io/proxyImage", "istio.io/rev", "weft.dev/x"])
@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_labels_and_annotations_that_control_injection_are_rejected(place, key):
    (problem,) = told(gateway("{name: a, port: 80, protocol: HTTP}", f"\ninfrastructure: {{{place}: {{{key}: x}}}}"))
    assert problem.startswith(f"8 `{key}` cannot be set by a Gateway")


@pytest.mark.parametrize("kind", ["IPAddress", "Hostname"])
def test_an_address_without_a_value_is_left_to_weft(kind):
    found = value(gateway("{name: a, port: 80, protocol: HTTP}", f"\naddresses: [{{type: {kind}}}]"))
    assert found.addresses == ()


def test_reads_the_ca_of_client_certificates_for_all_ports_and_for_one():
    refs = "validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: NAME}]}"
    one = f"perPort: [{{port: 8443, tls: {{{refs.replace('NAME', 'b')}}}}}, {{port: 9443, tls: {{}}}}]"
    text = f"\ntls: {{frontend: {{default: {{{refs.replace('NAME', 'a')}}}, {one}}}}}"
    found = value(gateway("{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: s}]}}", text))
    (listener,) = found.listeners
    assert found.bundles == (("shop", "a"), ("shop", "b"))

    def of(port, protocol="HTTPS"):
        check = found.check_of(replace(listener, port=port, protocol=protocol))
        return [each.name for each in check.authorities] if check else None

    assert (of(443), of(8443), of(9443), of(443, "TLS")) == (["a"], ["b"], [], None)


def test_an_address_is_the_host_of_an_existing_service():
    good = gateway("{name: a, port: 80, protocol: HTTP}", "\naddresses: [{type: Hostname, value: edge.shop.svc}]")
    assert value(good).addresses == (("Hostname", "edge.shop.svc"),)
    bad = gateway("{name: a, port: 80, protocol: HTTP}", "\naddresses: [{type: Hostname, value: a/b}]")
    assert told(bad) == [
        "8 `a/b` is not a host name (use the host of the Service in front of the Gateway's proxies)",
    ]


def test_listener_names_are_unique():
    text = "{name: a, port: 80, protocol: HTTP}\n  - {name: a, port: 81, protocol: HTTP}"
    assert told(gateway(text)) == ["8 two listeners are named `a`"]
