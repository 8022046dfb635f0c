"""Findings about the Secrets that DestinationRules name by `credentialName`: Secrets in the namespaces of the gateways
that use the rule. `meant_secret`, the hint for a missing Secret, is also used by other checks."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, levels
from weft.model.edge import AUTHORITIES
from weft.model.names import CredentialRef


def of_credentials(facts: Facts) -> Iterator[Problem]:
    for rule in facts.rules:
        users = _users(rule, facts)
        places = [place for place, runner in users if runner.instance.gateway]
        for tls in dict.fromkeys(level.tls for level in levels(rule) if level.tls is not None and level.tls.credential):
            if users and not places:
                yield _only_for_gateways(rule, tls)
                continue
            flaws = [_flaw(tls, place, facts) for place in dict.fromkeys(places)]
            if not places or any(what == "" for what, _ in flaws):
                continue  # some callers have the Secret, and whether the others use the rule is unknown
            what, hint = flaws[0]
            text = f"{what}: calls to {rule.host} that use this rule fail with 503"
            yield finding("WFT0219", rule.origin, "spec", text, hint)


def meant_secret(name: str, place: str, facts: Facts) -> str:
    """Hint for the missing Secret `name` in the namespace `place`: another namespace that has a Secret of this name,
    or else a similar name in `place`."""
    elsewhere = sorted(each.namespace for each in facts.credentials if each.name == name)
    if elsewhere:
        return f"namespace {elsewhere[0]} has a Secret of this name; it must be in namespace {place}"
    return did_you_mean(name, (each.name for each in facts.credentials if each.namespace == place))


def _users(rule: DestinationRule, facts: Facts) -> list[tuple[str, Runner]]:
    """The pods that would use the rule's Secret, each with its namespace: those that the rule's workloadSelector
    selects; without a workloadSelector, all gateways."""
    if rule.workload_selector:
        return [(rule.namespace, each) for each in facts.selected(rule.namespace, rule.workload_selector)]
    return [(place, each) for place, runners in facts.runners.items() for each in runners if each.instance.gateway]


def _only_for_gateways(rule: DestinationRule, tls: ClientTls) -> Problem:
    text = f"only gateways get the Secret {tls.credential}: calls of the selected sidecars to {rule.host} fail with 503"
    hint = (
        "mount the certificates into the pods, and name the files by caCertificates, clientCertificate and privateKey"
    )
    return finding("WFT0219", rule.origin, "spec", text, hint)


def _flaw(tls: ClientTls, place: str, facts: Facts) -> tuple[str, str]:
    """What the Secret of `tls` lacks in the namespace `place`, and a hint; empty strings if it lacks nothing."""
    own = facts.credentials.get(CredentialRef(tls.credential, place))
    trusted = facts.credentials.get(CredentialRef(f"{tls.credential}{AUTHORITIES}", place))
    named = f"Secret {place}/{tls.credential}"
    if own is None and (trusted is None or tls.mode is ClientTlsMode.MUTUAL):
        hint = meant_secret(tls.credential, place, facts)
        return f"the {named} does not exist or cannot be parsed", hint
    if tls.mode is ClientTlsMode.MUTUAL and (own is None or not own.chain):
        return f"the {named} has no certificate", "the Secret needs `tls.crt` and `tls.key`"
    if tls.verify and not any(each is not None and each.roots for each in (own, trusted)):
        return f"the {named} has no CA certificate", "the Secret needs `ca.crt`"
    return "", ""
