"""Secrets that DestinationRules name: those who call by them look for each in their own namespace. Also how one that is
missing may have been meant, for whoever looks for one."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, levels
from weft.model.edge import AUTHORITIES
from weft.model.gateway import CredentialRef


def of_credentials(facts: Facts) -> Iterator[Problem]:
    for rule in facts.rules:
        places = _callers(rule, facts)
        for tls in dict.fromkeys(level.tls for level in levels(rule) if level.tls is not None and level.tls.credential):
            flaws = [_flaw(tls, place, facts) for place in places]
            if not places or any(what == "" for what, _ in flaws):
                continue  # somebody can call, and who else would is not known here
            what, hint = flaws[0]
            told = f"{what}: who calls {rule.host} by this rule calls nobody"
            yield finding("WFT0219", rule.origin, "spec", told, hint)


def meant_secret(name: str, place: str, facts: Facts) -> str:
    """Where one of that name is, or which name may have been meant."""
    elsewhere = sorted(each.namespace for each in facts.credentials if each.name == name)
    if elsewhere:
        return f"there is one in {elsewhere[0]}; it must be in {place}"
    return did_you_mean(name, (each.name for each in facts.credentials if each.namespace == place))


def _callers(rule: DestinationRule, facts: Facts) -> list[str]:
    """The namespaces of those who may read a Secret for it."""
    if rule.workload_selector:
        return [rule.namespace] if facts.selected(rule.namespace, rule.workload_selector) else []
    return [place for place, held in facts.runners.items() if any(runner.instance.gateway for runner in held)]


def _flaw(tls: ClientTls, place: str, facts: Facts) -> tuple[str, str]:
    """What is missing in a namespace, and a hint; empty if nothing."""
    own = facts.credentials.get(CredentialRef(tls.credential, place))
    trusted = facts.credentials.get(CredentialRef(f"{tls.credential}{AUTHORITIES}", place))
    named = f"Secret {place}/{tls.credential}"
    if own is None and (trusted is None or tls.mode is ClientTlsMode.MUTUAL):
        hint = meant_secret(tls.credential, place, facts)
        return f"there is no {named}, or none that can be read", hint
    if tls.mode is ClientTlsMode.MUTUAL and (own is None or not own.chain):
        return f"the {named} has no certificate to show", "it needs `tls.crt` and `tls.key`"
    if tls.verify and not any(each is not None and each.roots for each in (own, trusted)):
        return f"the {named} does not say whom to trust", "it needs `ca.crt`"
    return "", ""
