"""The identities that the TLS handshake accepts: never stricter than the policies."""

from __future__ import annotations

import re

import pytest

from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Condition, Operation, Source
from weft.model.group import ProxyKind
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.callers import known_callers
from weft.translate.view import GroupView

WEB, OTHER = "spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/bank/sa/web"
FORMER, FOREIGN = "spiffe://old.example/ns/shop/sa/web", "spiffe://evil.example/ns/shop/sa/web"
SETTINGS = Settings(trust_domain_aliases=("old.example",))


def callers(*rules, **policy):
    policies = (AuthorizationPolicy("p", "shop", rules=rules, **policy),)
    return known_callers(GroupView(ProxyKind.SIDECAR, (), OutboundPolicy.ALLOW_ANY, SETTINGS, authorization=policies))


def let_in(*rules):
    found = callers(*rules)
    assert found is not None
    return {name for name in (WEB, OTHER, FORMER, FOREIGN) if any(re.fullmatch(each, name) for each in found)}


@pytest.mark.parametrize(
    "source",
    [
        Source(principals=("cluster.local/ns/shop/sa/web",)),
        Source(service_accounts=("shop/web",)),
        Source(namespaces=("shop",)),
        Source(namespaces=("sh*",), ip_blocks=("10.0.0.0/8",)),
    ],
)
def test_accepts_the_named_principals_also_of_former_trust_domains_and_no_others(source):
    assert let_in(AuthorizationRule(sources=(source,))) == {WEB, FORMER}


def test_a_prefix_of_a_principal_matches_only_that_prefix():
    assert let_in(AuthorizationRule(sources=(Source(principals=("cluster.local/ns/shop/*",)),))) == {WEB}


def test_trust_domains_limit_the_accepted_identities():
    assert let_in(AuthorizationRule(sources=(Source(trust_domains=("*.local",)),))) == {WEB, OTHER}
    assert let_in(AuthorizationRule(sources=(Source(trust_domains=("cluster.local",)),))) == {WEB, OTHER, FORMER}
    assert let_in(AuthorizationRule(sources=(Source(trust_domains=("old*",), namespaces=("shop",)),))) == {FORMER}
    assert callers(AuthorizationRule(sources=(Source(trust_domains=("evil.example",)),))) == ()
    condition = Condition("source.trustDomain", (), ("*.local",), ())
    assert let_in(AuthorizationRule(conditions=(condition,))) == {WEB, OTHER}


def test_principals_in_conditions_and_in_all_rules_count():
    by_condition = AuthorizationRule(conditions=(Condition("source.namespace", (), ("bank",), ()),))
    assert let_in(by_condition) == {OTHER}
    assert let_in(by_condition, AuthorizationRule(sources=(Source(service_accounts=("shop/web",)),))) == {
        WEB,
        FORMER,
        OTHER,
    }


def test_no_caller_is_accepted_where_no_rule_can_allow_one():
    assert callers() == ()
    assert callers(AuthorizationRule(operations=(Operation(paths=("/x",)),))) == ()  # needs HTTP
    assert callers(AuthorizationRule(sources=(Source(principals=("evil.example/ns/shop/sa/web",)),))) == ()


@pytest.mark.parametrize(
    "rule",
    [
        AuthorizationRule(),
        AuthorizationRule(sources=(Source(ip_blocks=("10.0.0.0/8",)),)),
        AuthorizationRule(sources=(Source(not_principals=("cluster.local/ns/shop/sa/web",)),)),
        AuthorizationRule(sources=(Source(service_accounts=("shop/web",)), Source(ip_blocks=("10.0.0.0/8",)))),
        AuthorizationRule(sources=(Source(principals=("*",)),)),
        AuthorizationRule(sources=(Source(principals=("*/sa/web",)),)),
        AuthorizationRule(sources=(Source(principals=("cluster*",)),)),
        AuthorizationRule(conditions=(Condition("source.ip", (), ("10.0.0.1",), ()),)),
    ],
)
def test_identities_do_not_decide_where_a_rule_allows_by_other_properties(rule):
    assert callers(rule, AuthorizationRule(sources=(Source(service_accounts=("shop/web",)),))) is None


def test_only_enforced_allow_policies_restrict_identities():
    named = AuthorizationRule(sources=(Source(service_accounts=("shop/web",)),))
    assert callers(named, action=Action.DENY) is None
    assert callers(named, dry_run=True) is None
    assert known_callers(GroupView(ProxyKind.SIDECAR, (), OutboundPolicy.ALLOW_ANY, SETTINGS)) is None
