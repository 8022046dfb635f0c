import pytest

from api.reading import document, istio, told, value
from weft.api.parse import parse
from weft.model.destination_rule import ClientTls, ClientTlsMode, TrafficPolicy, effective

FILES = "clientCertificate: /a/c.pem, privateKey: /a/k.pem, caCertificates: /b/ca.pem"


def rule(text, more=""):
    return istio("DestinationRule", f"host: a.b\n{more}\ntrafficPolicy: {text}")


def closed(text):
    parsed = parse(document(text))
    assert not parsed.values and any(problem.severity == "error" for problem in parsed.problems)
    return parsed.closed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{}", ClientTls()),
        ("{mode: DISABLE}", ClientTls()),
        ("{mode: ISTIO_MUTUAL}", ClientTls(ClientTlsMode.ISTIO_MUTUAL)),
        (
            "{mode: ISTIO_MUTUAL, sni: outbound_.80_._.a.b, subjectAltNames: ['spiffe://x/y']}",
            ClientTls(ClientTlsMode.ISTIO_MUTUAL, "outbound_.80_._.a.b", ("spiffe://x/y",)),
        ),
        ("{mode: SIMPLE, insecureSkipVerify: true}", ClientTls(ClientTlsMode.SIMPLE, verify=False)),
        (
            "{mode: SIMPLE, sni: c.d, subjectAltNames: [e.f], caCertificates: /ca.pem, caCrl: /crl.pem}",
            ClientTls(ClientTlsMode.SIMPLE, "c.d", ("e.f",), authorities="/ca.pem", revoked="/crl.pem"),
        ),
        (
            f"{{mode: MUTUAL, {FILES}}}",
            ClientTls(ClientTlsMode.MUTUAL, certificate="/a/c.pem", private_key="/a/k.pem", authorities="/b/ca.pem"),
        ),
    ],
)
def test_reads_each_mode(text, found):
    assert value(rule(f"{{tls: {text}}}")).policy.tls == found


def test_a_subset_and_a_port_have_their_own_tls():
    found = value(
        istio(
            "DestinationRule",
            """
            host: a
            trafficPolicy:
              tls: {mode: ISTIO_MUTUAL}
              portLevelSettings: [{port: {number: 90}, tls: {mode: DISABLE}}, {port: {number: 91}}]
            subsets:
            - {name: v1, trafficPolicy: {tls: {mode: SIMPLE}}}
            - {name: v2}
            """,
        )
    )
    v1, v2 = found.subsets
    modes = [
        policy.tls and policy.tls.mode.value
        for policy in (
            effective(found, 80),
            effective(found, 90),
            effective(found, 91),
            effective(found, 80, v1),
            effective(found, 90, v1),
            effective(found, 90, v2),
        )
    ]
    assert modes == ["ISTIO_MUTUAL", "DISABLE", None, "SIMPLE", "SIMPLE", "DISABLE"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{caCertificates: /x}", "`caCertificates` would have no effect, since `mode` is missing (set `mode`)"),
        ("{mode: SIMPLE, privateKey: /x}", "`privateKey` would have no effect, since `mode` is SIMPLE"),
        (f"{{mode: ISTIO_MUTUAL, {FILES}}}", "would have no effect, since `mode` is ISTIO_MUTUAL"),
        ("{mode: MUTUAL, clientCertificate: /x}", "`mode: MUTUAL` needs `privateKey`"),
        (
            f"{{mode: MUTUAL, {FILES}, insecureSkipVerify: true}}",
            "since `insecureSkipVerify` accepts every certificate",
        ),
        (
            "{mode: SIMPLE, credentialName: c, insecureSkipVerify: true}",
            "`credentialName` would have no effect, since `insecureSkipVerify` accepts every certificate",
        ),
        ("{mode: SIMPLE, caCertificates: /certs/}", "`/certs/` is not the path of a file"),
        ("{mode: SIMPLE, sni: 'a b'}", "`a b` is not a name for `sni`"),
        ("{mode: SIMPLE, credentialName: a/b}", "`a/b` is not the name of a Secret"),
        (
            "{mode: SIMPLE, credentialName: c, caCertificates: /a}",
            "`caCertificates` would have no effect beside `credentialName`",
        ),
        ("{mode: SIMPEL}", "`mode` cannot be `SIMPEL` (did you mean `SIMPLE`?)"),
        ("{mode: CLOSED}", "`mode` cannot be `CLOSED`"),
        ("simple", "`tls` must be a mapping"),
        ("{mode: SIMPLE, subjectAltName: [a]}", "unknown field `subjectAltName`"),
    ],
)
def test_tls_that_cannot_be_applied_is_rejected_and_calls_fail(text, said):
    (problem,) = told(rule(f"{{tls: {text}}}"))
    assert said in problem
    (stand_in,) = closed(rule(f"{{tls: {text}}}"))
    assert stand_in.host == "a.b" and stand_in.policy.tls.mode is ClientTlsMode.CLOSED


def test_a_rejected_rule_with_tls_disabled_keeps_plaintext():
    (problem,) = told(rule("{tls: {mode: DISABLE, sni: x.y}}"))
    assert "`sni` would have no effect, since `mode` is DISABLE (set `mode`)" in problem
    assert closed(rule("{tls: {mode: DISABLE, sni: x.y}}")) == ()


def test_credential_name_replaces_all_files():
    text = rule("{tls: {mode: MUTUAL, credentialName: c}}", "workloadSelector: {matchLabels: {a: b}}")
    assert told(text) == []
    assert value(text).policy.tls.credential == "c"


def test_a_rejected_rule_closes_only_levels_with_tls():
    (stand_in,) = closed(
        istio(
            "DestinationRule",
            """
            host: a
            trafficPolicy:
              loadBalancer: {simple: RANDM}
              tls: {mode: SIMPLE}
              portLevelSettings: [{port: {number: 90}, tls: {mode: DISABLE}}]
            subsets: [{name: v1, labels: {v: v1}, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}]
            """,
        )
    )
    nobody = ClientTls(ClientTlsMode.CLOSED)
    assert stand_in.policy == TrafficPolicy(tls=nobody, ports=((90, TrafficPolicy(tls=ClientTls())),))
    assert effective(stand_in, 80, stand_in.subsets[0]).tls == nobody


def test_a_rejected_rule_without_tls_is_replaced_by_nothing():
    assert closed(rule("{loadBalancer: {simple: RANDM}}")) == ()
    assert closed(rule("{loadBalancer: {simple: RANDM}, tls: {mode: DISABLE}}")) == ()
