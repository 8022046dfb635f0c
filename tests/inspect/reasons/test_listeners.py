import pytest
from tests.inspect.reasons.told import mesh_of, rule, told
from tests.inspect.test_stage import DENY

from weft.inspect.ask.why import why
from weft.inspect.stage import Stage

SERVER = "payments-0.shop"
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{selector: {{app: payments}}, ports: [{port}]}}
"""


def inbound(mesh, path=""):
    return told(mesh, f"virtualInbound.{path}" if path else "virtualInbound", SERVER, "listener")


def security(kind, spec, name="payments", namespace="shop"):
    return rule(spec, name=name, namespace=namespace, kind=kind, group="security")


def policies(mesh, kind="AuthorizationPolicy"):
    """The object and the rules of each policy rule in the HTTP filter chains."""
    (found,) = why(mesh, Stage(mesh), SERVER, "virtualInbound", "listener")
    return {
        part.path.rpartition("policies[")[2][:-1]: (part.sources, tuple(each.name for each in part.rules))
        for part in found.parts
        if ".policies[" in part.path and "http_connection_manager" in part.path
    }


def test_permissive_mode_is_named_as_the_default():
    found, by = inbound(mesh_of(), "filter_chains[0.0.0.0_8080#1]")
    assert found == ("Service shop/payments (service.yaml:2)",)
    assert by == ("permissive", "protocol-declared")
    assert inbound(mesh_of(), "filter_chains[virtualInbound-blackhole]") == ((), ("loop-guard",))
    assert inbound(mesh_of())[1] == ("inbound-listener",)


@pytest.mark.parametrize(
    ("name", "says", "expected"),
    [
        ("aaa", "tcp", ("protocol-declared", "callers-told-apart")),
        ("zzz", "tcp", ("callers-told-apart",)),  # the protocol is detected
        ("aaa", "", ("protocol-detected", "callers-told-apart")),
        ("zzz", "http-too", ("protocol-declared",)),
    ],
)
def test_services_with_different_protocols_name_the_deciding_one(name, says, expected):
    other = SERVICE.format(name=name, port=f"{{name: '{says}', port: 90, targetPort: 8080}}")
    found, by = inbound(mesh_of(other=other), "filter_chains[0.0.0.0_8080#1]")
    assert by == ("permissive", *expected)
    assert {each.split()[1] for each in found} == {"shop/payments", f"shop/{name}"}


def test_the_narrowest_peer_authentication_decides_and_alone_is_named():
    mesh = mesh_of(
        everywhere=security("PeerAuthentication", "mtls: {mode: STRICT}", "default", "istio-system"),
        own=security(
            "PeerAuthentication",
            "selector: {matchLabels: {app: payments}}\nmtls: {mode: STRICT}\nportLevelMtls: {9000: {mode: DISABLE}}",
        ),
    )
    found, by = inbound(mesh, "filter_chains[0.0.0.0_8080]")
    assert found == ("PeerAuthentication shop/payments (own.yaml:1)", "Service shop/payments (service.yaml:2)")
    assert by == ("peer-authentication-levels", "protocol-declared")
    found, by = inbound(mesh, "filter_chains[0.0.0.0_9000")
    assert found == ("PeerAuthentication shop/payments portLevelMtls[9000] (own.yaml:1)",)
    assert by == ("peer-authentication-levels", "inbound-rest", "protocol-detected")


@pytest.mark.parametrize(
    ("action", "expected"),
    [("ALLOW", "allow-denies-the-rest"), ("DENY", "deny-before-allow"), ("AUDIT", "audit-notes")],
)
def test_each_policy_rule_has_its_line_and_precedence(action, expected):
    spec = (
        f"action: {action}\nrules:\n- to: [{{operation: {{methods: [GET]}}}}]\n- to: [{{operation: {{ports: ['80']}}}}]"
    )
    found = policies(mesh_of(policy=security("AuthorizationPolicy", spec)))
    for number, line in ((0, 7), (1, 8)):
        assert found[f"ns[shop]-policy[payments]-rule[{number}]"] == (
            (f"AuthorizationPolicy shop/payments rule[{number}] (policy.yaml:{line})",),
            (expected,),
        )


def test_dry_run_missing_authorizer_and_bypass_rules_are_distinguished():
    dry = security(
        "AuthorizationPolicy", "action: DENY\nrules: [{to: [{operation: {methods: [GET]}}]}]", "dry"
    ).replace("namespace: shop}", 'namespace: shop, annotations: {istio.io/dry-run: "true"}}')
    custom = security("AuthorizationPolicy", "action: CUSTOM\nprovider: {name: nobody}\nrules: [{}]", "custom")
    paths = security("AuthorizationPolicy", "rules: [{to: [{operation: {paths: [/a]}}]}]", "paths")
    found = policies(mesh_of(dry=dry, custom=custom, paths=paths))
    assert found["ns[shop]-policy[dry]-rule[0]"][1] == ("dry-run-notes",)
    assert found["ns[shop]-policy[paths]-rule[0]"][1] == ("allow-denies-the-rest", "policies-add-up")
    assert found["weft-disguised-path"] == ((), ("disguises-denied",))
    (missing,) = [told for name, told in found.items() if "policy[custom]" in name]
    assert missing[1] == ("no-authorizer",)


def test_an_issuer_names_its_request_authentication():
    key = (
        '{"keys": [{"kid": "k1", "alg": "ES256", "kty": "EC", "crv": "P-256", '
        '"x": "mKe03v0L_Z05aiWI1FhoQNPVjn6xg7EFzhpwYdEXN_A", "y": "i-zzjw6vokuXFEYOP79GTYnDICkcUdKOU-CHPqYWkCg"}]}'
    )
    one = security("RequestAuthentication", f"jwtRules: [{{issuer: b, jwks: '{key}'}}]", "one")
    two = security("RequestAuthentication", f"jwtRules: [{{issuer: a, jwks: '{key}'}}]", "two")
    mesh = mesh_of(one=one, two=two)
    (found,) = why(mesh, Stage(mesh), SERVER, "virtualInbound", "listener")
    providers = {
        part.path.rpartition(".")[2]: (part.sources, part.rules[0].name)
        for part in found.parts
        if ".providers[" in part.path
    }
    assert providers == {
        "providers[origins-0]": (("RequestAuthentication shop/two (two.yaml:1)",), "token-optional"),
        "providers[origins-1]": (("RequestAuthentication shop/one (one.yaml:1)",), "token-optional"),
    }


def test_outbound_listeners_name_port_address_or_outbound_policy():
    tcp = """
apiVersion: v1
kind: Service
metadata: {name: ledger, namespace: shop}
spec: {clusterIP: 10.96.0.9, selector: {app: ledger}, ports: [{name: tcp, port: 7000}]}
"""
    mesh = mesh_of(tcp=tcp)
    assert told(mesh, "0.0.0.0_80", kind="listener") == ((), ("listener-per-http-port",))
    assert told(mesh, "0.0.0.0_80.default_filter_chain", kind="listener") == ((), ("allow-any",))
    assert told(mesh, "0.0.0.0_80.filter_chains[0]", kind="listener")[1] == (
        "listener-per-http-port",
        "routes-per-port",
    )
    written = ("Service shop/ledger (tcp.yaml:2)",)
    assert told(mesh, "10.96.0.9_7000", kind="listener") == (written, ("listener-per-address", "first-claim"))
    assert told(mesh, "10.96.0.9_7000.filter_chains[0]", kind="listener") == (written, ("route-to-service",))
    assert told(mesh, "virtualOutbound.filter_chains[virtualOutbound-catchall-tcp]") == ((), ("allow-any",))


def test_access_logging_names_the_mesh_a_telemetry_or_the_default():
    assert inbound(mesh_of(), "access_log") == ((), ("no-access-log",))
    config = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n"
        "data:\n  mesh: |\n    accessLogFile: /dev/stdout\n"
    )
    assert inbound(mesh_of(mesh=config), "access_log") == (
        ("ConfigMap istio-system/istio (mesh.yaml:1)",),
        ("access-log-of-mesh",),
    )
    own = rule("accessLogging: [{providers: [{name: envoy}]}]", kind="Telemetry", group="telemetry")
    assert inbound(mesh_of(mesh=config, own=own), "access_log") == (
        ("Telemetry shop/payments (own.yaml:1)",),
        ("telemetry-levels",),
    )


def test_the_policy_of_the_shop_is_found_in_every_chain():
    assert policies(mesh_of(deny=DENY))["ns[shop]-policy[only-orders]-rule[0]"][1] == ("allow-denies-the-rest",)
