"""Findings about RequestAuthentications that select no workload, keys that a pod cannot fetch, and policies about
tokens or issuers that no RequestAuthentication checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import finding
from weft.analyze.ports import Ports
from weft.analyze.unmatched_selectors import selects_nothing
from weft.api.syntax import is_address
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.authorization_policy import AuthorizationPolicy, AuthorizationRule
from weft.model.names import selects
from weft.model.request_authentication import RequestAuthentication
from weft.model.virtual_service import MESH, claim_path

_OF_TOKENS = "request.auth."  # prefix of condition keys that are about tokens


def of_tokens(facts: Facts) -> Iterator[Problem]:
    checked: set[tuple[str, str]] = set()
    issuers: dict[tuple[str, str], set[str]] = defaultdict(set)  # the issuers that each runner trusts
    ports = Ports(facts)
    for each in facts.authentications:
        yield from selects_nothing("WFT0541", each, facts, "the RequestAuthentication has no effect")
        chosen = facts.chosen(each.namespace, each.selector, each.targets)
        checked |= {(namespace, runner.name) for namespace, runner in chosen if each.rules or each.refused}
        yield from _of_keys(each, chosen, facts)
        yield from _of_disguises(each, chosen, ports)
        for place, runner in chosen:
            issuers[(place, runner.name)] |= {rule.issuer for rule in each.rules}
    yield from _of_routes(facts, checked)
    for policy in facts.policies:
        guarded = facts.chosen(policy.namespace, policy.selector, policy.targets)
        yield from _of_issuers(policy, guarded, issuers)
        if policy.refused or not guarded or any((place, runner.name) in checked for place, runner in guarded):
            continue
        yield from _of_policy(policy, guarded)


def _of_keys(
    authentication: RequestAuthentication, chosen: list[tuple[str, Runner]], facts: Facts
) -> Iterator[Problem]:
    """Findings about `jwksUri`s that the pods of a mesh on one machine cannot fetch, because these pods cannot call
    hosts outside the mesh. Pods on a cluster, which belong to no Workload, are not checked. `chosen`: the runners
    (workloads or pods) that the RequestAuthentication selects, each with its namespace."""
    local = facts.confined and any(
        runner.instance.origin and runner.instance.origin.key.kind == "Workload" for _, runner in chosen
    )
    for number, rule in enumerate(authentication.rules):
        server = rule.key_server
        if not local or server is None or server.meshed or is_address(server.host):
            continue
        if not facts.services_of(server.host):
            what = (
                f"pods of a mesh on one machine cannot fetch keys from {server.host}: every request with a "
                f"token of {rule.issuer or 'any issuer'} gets 401"
            )
            hint = "write the keys into the rule instead, as `jwks`, or let pods reach the host: weft up --egress"
            yield finding(
                "WFT0542", authentication.origin, f"spec.jwtRules[{number}].jwksUri", what, hint, line=rule.line
            )


def _of_disguises(
    authentication: RequestAuthentication, chosen: list[tuple[str, Runner]], ports: Ports
) -> Iterator[Problem]:
    """Finding about a port where requests can bypass the token check, because Envoy detects the protocol of the port
    from the first bytes: a request that begins with an empty line is taken for raw TCP, in which no token is checked.
    `chosen`: the runners (workloads or pods) that the RequestAuthentication selects, each with its namespace."""
    for namespace, runner in chosen if authentication.rules else ():
        for port in ports.disguising(namespace, runner):
            if port in ports.tcp.get((namespace, runner.name), ()):
                why = f"port {port} of {runner.name} is HTTP to one Service and not to another"
                hint = "declare the port as `http` in all its Services"
            else:
                known = port in ports.http.get((namespace, runner.name), ())
                why = f"{'not every' if known else 'no'} Service declares the protocol of port {port} of {runner.name}"
                hint = "name the Service's port `http`, or set `appProtocol`"
            what = f"{why}: an HTTP request disguised as raw TCP is accepted without a check of its token"
            yield finding("WFT0543", authentication.origin, "spec", what, hint)
            return


def _of_routes(facts: Facts, checked: set[tuple[str, str]]) -> Iterator[Problem]:
    """Findings about http routes that match claims of a token although no proxy checks tokens for them: sidecars do
    not, and a gateway does only if a RequestAuthentication selects it. `checked`: the workloads (namespace, name) that
    a RequestAuthentication selects."""
    for routing in facts.virtual_services:
        for number, route in enumerate(routing.http):
            names = (name for match in route.match for name, _ in (*match.headers, *match.without_headers))
            if not any(map(claim_path, names)):
                continue
            gateways = [facts.gateways[name] for name in routing.gateways if name in facts.gateways]
            served = [
                (place, runner.name)
                for place, runners in facts.runners.items()
                for runner in runners
                if runner.instance.gateway and any(selects(each.selector, runner.labels) for each in gateways)
            ]
            if MESH in routing.gateways:
                what = "sidecars do not check tokens of the calls that their workloads send, so no claim matches there"
                hint = (
                    "bind the VirtualService to a Gateway, and add a RequestAuthentication for the gateway's workload"
                )
            elif served and not checked.intersection(served):
                what = f"no RequestAuthentication selects {served[0][1]}: it checks no token, so no claim matches"
                hint = "add a RequestAuthentication for the gateway's workload"
            else:
                continue
            yield finding("WFT0546", routing.origin, f"spec.http[{number}]", what, hint, line=route.line)


def _of_issuers(
    policy: AuthorizationPolicy, guarded: list[tuple[str, Runner]], issuers: Mapping[tuple[str, str], set[str]]
) -> Iterator[Problem]:
    wanted = [each for number, rule in enumerate(policy.rules) for each in _wanted(number, rule)]
    known = {issuer for place, runner in guarded for issuer in issuers.get((place, runner.name), ())} if wanted else ()
    # If none is known, WFT0544 is reported instead; if one is "", tokens of any issuer may be accepted.
    for field, line, value in wanted if known and "" not in known else ():
        issuer = value.rpartition("/")[0]
        if issuer and "*" not in issuer and issuer not in known:
            what = f"`{value}` matches no request: no RequestAuthentication for {guarded[0][1].name} trusts {issuer}"
            yield finding("WFT0545", policy.origin, field, what, did_you_mean(issuer, known), line=line)


def _wanted(number: int, rule: AuthorizationRule) -> Iterator[tuple[str, int, str]]:
    """The request principals that the rule with this number names. Yields for each its field, its line, and its
    value ISSUER/SUBJECT."""
    for index, source in enumerate(rule.sources):
        for place, value in enumerate(source.request_principals):
            yield f"spec.rules[{number}].from[{index}].source.requestPrincipals[{place}]", rule.line, value
    for index, condition in enumerate(rule.conditions):
        for value in condition.values if condition.key == "request.auth.principal" else ():
            yield f"spec.rules[{number}].when[{index}].values", rule.line, value


def _of_policy(policy: AuthorizationPolicy, guarded: list[tuple[str, Runner]]) -> Iterator[Problem]:
    for number, rule in enumerate(policy.rules):
        outcome = (
            "matches no request"
            if _asks_for(rule)
            else "treats every request as one without a token"
            if _asks_about(rule)
            else ""
        )
        if outcome:
            name = guarded[0][1].name
            unchecked = f"no RequestAuthentication selects {name}: tokens are not checked there"
            what, hint = f"{unchecked}, and this rule {outcome}", "add a RequestAuthentication for the workload"
            yield finding("WFT0544", policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)


def _asks_for(rule: AuthorizationRule) -> bool:
    """Whether the rule can match only requests with a valid token."""
    named = bool(rule.sources) and all(source.request_principals for source in rule.sources)
    return named or any(each.key.startswith(_OF_TOKENS) and each.values for each in rule.conditions)


def _asks_about(rule: AuthorizationRule) -> bool:
    return any(source.request_principals or source.not_request_principals for source in rule.sources) or any(
        each.key.startswith(_OF_TOKENS) for each in rule.conditions
    )
