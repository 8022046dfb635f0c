import pytest

from weft.mesh.gateway_api.backend_tls import called_over_tls
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    DestinationRule,
    Subset,
    TrafficPolicy,
    completed,
    effective,
)
from weft.model.gateway_api import AuthorityBundle, BackendTls
from weft.model.service import Protocol, Service, ServicePort

SERVICE = Service("web.shop", "web", "shop", (ServicePort(80, "http", Protocol.HTTP), ServicePort(81, "b")))
ROOTS = {("shop", "roots"): AuthorityBundle("roots", "shop", "PEM")}


def policy(name="x", section="", created="", **whom):
    return BackendTls(name, "shop", "web", "web.shop", f"{name}.example.com", section, created=created, **whom)


def reasons(outcomes):
    return [(each.policy.name, each.conditions[0].reason) for each in outcomes]


def test_the_policys_hostname_is_the_server_name():
    (rule,), outcomes = called_over_tls([policy(bundles=("roots",))], SERVICE, ROOTS)
    assert rule.policy.tls == ClientTls(ClientTlsMode.SIMPLE, server_name="x.example.com", roots="PEM", of_gateway=True)
    assert (rule.host, rule.attached) == ("web.shop", True)
    assert reasons(outcomes) == [("x", "Accepted")]


def test_a_policy_for_a_port_precedes_one_for_all_ports():
    (rule,), _ = called_over_tls([policy("all", system=True), policy("one", "b", system=True)], SERVICE, {})
    assert effective(rule, 80).tls.server_name == "all.example.com"
    assert effective(rule, 81).tls.server_name == "one.example.com"


@pytest.mark.parametrize(
    ("policies", "service", "expected"),
    [
        ([policy(system=True)], None, [("x", "TargetNotFound")]),
        ([policy(section="none", system=True)], SERVICE, [("x", "TargetNotFound")]),
        (
            [policy("new", created="2026-02", system=True), policy("old", created="2026-01", system=True)],
            SERVICE,
            [("old", "Accepted"), ("new", "Conflicted")],
        ),
        ([policy(bundles=("gone",))], SERVICE, [("x", "NoValidCACertificate")]),
        ([policy(other_kinds=("Secret",))], SERVICE, [("x", "NoValidCACertificate")]),
    ],
)
def test_a_policy_that_is_not_in_effect_has_the_reason_in_its_condition(policies, service, expected):
    assert reasons(called_over_tls(policies, service, ROOTS)[1]) == expected


def test_an_unsupported_ca_kind_and_a_missing_config_map_have_different_reasons():
    for whom, reason in (({"bundles": ("gone",)}, "InvalidCACertificateRef"), ({"other_kinds": ("A",)}, "InvalidKind")):
        (rule,), (outcome,) = called_over_tls([policy(**whom)], SERVICE, ROOTS)
        assert outcome.conditions[1].reason == reason
        assert rule.policy.tls.mode is ClientTlsMode.CLOSED


def test_without_valid_ca_certificates_calls_fail():
    (rule,), _ = called_over_tls([policy(bundles=("gone",))], SERVICE, ROOTS)
    assert rule.policy.tls.mode is ClientTlsMode.CLOSED


def test_a_destination_rule_keeps_its_fields_and_gets_the_policys_tls():
    (made,), _ = called_over_tls([policy("all", system=True), policy("one", "b", system=True)], SERVICE, {})
    pool = ConnectionPool(max_connections=7)
    written = DestinationRule("w", "shop", "web.shop", TrafficPolicy(connection_pool=pool))
    rule = completed(written, made)
    for port, name in ((80, "all.example.com"), (81, "one.example.com")):
        found = effective(rule, port)
        assert (found.tls.server_name, found.connection_pool) == (name, pool)
    off = DestinationRule("w", "shop", "web.shop", TrafficPolicy(tls=ClientTls(ClientTlsMode.DISABLE)))
    assert effective(completed(off, made), 80).tls.mode is ClientTlsMode.DISABLE


def test_a_port_or_subset_without_tls_gets_the_policys_tls():
    (made,), _ = called_over_tls([policy("all", system=True), policy("one", "b", system=True)], SERVICE, {})
    pool, off = ConnectionPool(max_connections=7), ClientTls(ClientTlsMode.DISABLE)
    silent = TrafficPolicy(ports=((80, TrafficPolicy(connection_pool=pool)), (81, TrafficPolicy(connection_pool=pool))))
    spoken = TrafficPolicy(ports=((80, TrafficPolicy(tls=off)),))
    subsets = (
        Subset("silent", policy=silent),
        Subset("spoken", policy=spoken),
        Subset("off", policy=TrafficPolicy(tls=off)),
    )
    for whole in (None, TrafficPolicy(), TrafficPolicy(tls=off), silent):
        rule = completed(DestinationRule("w", "shop", "web.shop", whole, subsets=subsets), made)
        for port, name in ((80, "all.example.com"), (81, "one.example.com")):
            found = effective(rule, port, rule.subsets[0])
            assert (found.tls.server_name, found.connection_pool) == (name, pool)
        assert [effective(rule, 80, each).tls for each in rule.subsets[1:]] == [off, off]
    assert effective(rule, 80).tls.server_name == "all.example.com"


def test_a_policy_for_one_port_changes_nothing_at_others():
    (made,), _ = called_over_tls([policy("one", "b", system=True)], SERVICE, {})
    pool, off = ConnectionPool(max_connections=7), ClientTls(ClientTlsMode.DISABLE)
    whole = TrafficPolicy(tls=off, ports=((80, TrafficPolicy(connection_pool=pool)),))
    rule = completed(DestinationRule("w", "shop", "web.shop", whole), made)
    assert (effective(rule, 80).tls, effective(rule, 81).tls) == (None, off)
