"""Findings about callers that an AuthorizationPolicy names and that do not exist: a trust domain that no certificate
of this mesh has, a namespace without workloads, a service account that no workload runs as.

The root namespace is not checked: its workloads, such as Istio's own gateways, are often installed separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.authorization_policy import AuthorizationPolicy, AuthorizationRule

_DEFAULT_DOMAIN = "cluster.local"  # stands for the mesh's own trust domain, as in Istio
_WELL = ("", "", "")
_Named = tuple[str, tuple[str, ...]]  # a field of a rule, and its values


class _Known(msgspec.Struct, frozen=True):
    domains: tuple[str, ...]  # including `cluster.local`
    own_domains: tuple[str, ...]  # those that certificates of this mesh may have
    namespaces: frozenset[str]
    accounts: Mapping[str, frozenset[str]]  # by namespace
    root: str


def of_callers(facts: Facts) -> Iterator[Problem]:
    """Findings about callers that AuthorizationPolicies name and that do not exist. There are no findings if no
    workload is known at all."""
    if not facts.runs or not facts.policies:
        return
    known = _known(facts)
    for policy in facts.policies:
        for number, rule in enumerate(policy.rules) if not policy.refused else ():
            yield from _of_rule(policy, number, rule, known)


def _known(facts: Facts) -> _Known:
    settings = facts.settings
    own = (settings.trust_domain, *settings.trust_domain_aliases)
    accounts: dict[str, set[str]] = defaultdict(set)
    for each in facts.accounts:
        place, _, name = each.partition("/")
        accounts[place].add(name)
    return _Known(
        domains=tuple(dict.fromkeys((*own, _DEFAULT_DOMAIN))),
        own_domains=own,
        # Namespaces that merely contain an object do not count: a policy in a misspelled namespace would make that
        # namespace known.
        namespaces=frozenset({*facts.declared, settings.root_namespace, *accounts}),
        accounts={place: frozenset(names) for place, names in accounts.items()},
        root=settings.root_namespace,
    )


def _of_rule(policy: AuthorizationPolicy, number: int, rule: AuthorizationRule, known: _Known) -> Iterator[Problem]:
    for against, named in (
        (_principal, _principals(rule)),
        (_namespace, _namespaces(rule)),
        (_account, _accounts(rule)),
        (_trust_domain, _trust_domains(rule)),
    ):
        for field, values in named:
            for index, value in enumerate(values):
                code, what, hint = against(value, known)
                if code:
                    at = f"spec.rules[{number}].{field}[{index}]"
                    yield finding(code, policy.origin, at, f"`{value}` matches no caller: {what}", hint, line=rule.line)


def _principals(rule: AuthorizationRule) -> Iterator[_Named]:
    for index, source in enumerate(rule.sources):
        yield f"from[{index}].source.principals", source.principals
        yield f"from[{index}].source.notPrincipals", source.not_principals
    yield from _in_conditions(rule, "source.principal")


def _namespaces(rule: AuthorizationRule) -> Iterator[_Named]:
    for index, source in enumerate(rule.sources):
        yield f"from[{index}].source.namespaces", source.namespaces
        yield f"from[{index}].source.notNamespaces", source.not_namespaces
    yield from _in_conditions(rule, "source.namespace")


def _accounts(rule: AuthorizationRule) -> Iterator[_Named]:
    for index, source in enumerate(rule.sources):
        yield f"from[{index}].source.serviceAccounts", source.service_accounts
        yield f"from[{index}].source.notServiceAccounts", source.not_service_accounts
    yield from _in_conditions(rule, "source.serviceAccount")


def _trust_domains(rule: AuthorizationRule) -> Iterator[_Named]:
    for index, source in enumerate(rule.sources):
        yield f"from[{index}].source.trustDomains", source.trust_domains
        yield f"from[{index}].source.notTrustDomains", source.not_trust_domains
    yield from _in_conditions(rule, "source.trustDomain")


def _in_conditions(rule: AuthorizationRule, key: str) -> Iterator[_Named]:
    for index, condition in enumerate(rule.conditions):
        if condition.key == key:
            yield f"when[{index}].values", condition.values
            yield f"when[{index}].notValues", condition.not_values


def _principal(value: str, known: _Known) -> tuple[str, str, str]:
    """The code, message and hint of the finding about `value`, a principal that a policy names; empty strings if
    there is no finding. `known`: the trust domains, namespaces and accounts that exist."""
    domain, is_whole, path = value.partition("/ns/")
    namespace, _, account = path.partition("/sa/")
    if f"/ns/{known.root}/" in value or value.startswith("spiffe://"):  # the parser reports the latter
        return _WELL
    if is_whole and "*" not in domain and domain not in known.domains:
        return "WFT0521", f"no workload has the trust domain {domain}", did_you_mean(domain, known.domains)
    if "*" in value:
        # Most values name a namespace, so that only the accounts of this namespace have to be compared.
        places = (namespace,) if account and "*" not in namespace else known.accounts
        there = any(_matches(value, each) for each in _principals_of(places, known))
        return _WELL if there else ("WFT0522", "no workload has such an identity", "")
    if not account:
        return "WFT0522", "a principal is TRUST_DOMAIN/ns/NAMESPACE/sa/ACCOUNT", ""
    code, what, hint = _account(f"{namespace}/{account}", known)
    return ("WFT0522" if code else ""), what, hint


def _principals_of(places: Iterable[str], known: _Known) -> Iterator[str]:
    for place in places:
        for name in known.accounts.get(place, ()):
            yield from (f"{domain}/ns/{place}/sa/{name}" for domain in known.domains)


def _namespace(value: str, known: _Known) -> tuple[str, str, str]:
    if value in known.namespaces or ("*" in value and any(_like(value, each) for each in known.namespaces)):
        return _WELL
    return "WFT0523", "no workload runs in such a namespace", did_you_mean(value.strip("*"), known.namespaces)


def _account(value: str, known: _Known) -> tuple[str, str, str]:
    namespace, _, name = value.partition("/")
    there = known.accounts.get(namespace, frozenset())
    if name in there or namespace == known.root:
        return _WELL
    if not there:
        return "WFT0524", f"no workload runs in namespace {namespace}", did_you_mean(namespace, known.accounts)
    return "WFT0524", f"no workload of namespace {namespace} runs as service account {name}", did_you_mean(name, there)


def _trust_domain(value: str, known: _Known) -> tuple[str, str, str]:
    if any(_matches(value, each) for each in known.own_domains):
        return _WELL
    return "WFT0521", f"no workload has the trust domain {value}", did_you_mean(value.strip("*"), known.own_domains)


def _matches(value: str, text: str) -> bool:
    """Whether `text` matches the pattern `value` by the rules for `principals` of a policy: `x`, `x*`, `*x` or `*`."""
    if value.startswith("*"):
        return text.endswith(value[1:])
    return text.startswith(value[:-1]) if value.endswith("*") else text == value


def _like(value: str, text: str) -> bool:
    """Whether `text` matches the pattern `value` by the rules for `namespaces` of a policy: `*` may be at any place."""
    first, *others = value.split("*")
    if not others:
        return text == first
    if not text.startswith(first):
        return False
    rest = text[len(first) :]
    for part in others[:-1]:
        at = rest.find(part)
        if at < 0:
            return False
        rest = rest[at + len(part) :]
    return rest.endswith(others[-1])
