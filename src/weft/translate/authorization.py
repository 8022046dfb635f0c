"""Translates AuthorizationPolicies to RBAC and ext_authz filters, in the order of their actions: CUSTOM, AUDIT, DENY,
ALLOW.

A matching DENY rule denies a request. If an ALLOW policy selects the workload, requests that match no ALLOW rule are
denied. Matches of a dry run or of an AUDIT policy are only written into the request's metadata, under the prefixes
below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.rbac.v3.rbac_pb2 import RBAC, Permission, Principal
from envoy.config.rbac.v3.rbac_pb2 import Policy as RbacPolicy
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac
from envoy.type.matcher.v3.path_pb2 import PathMatcher

from weft.model.authorization_policy import Action, AuthorizationPolicy
from weft.model.group import ProxyKind
from weft.model.settings import Settings
from weft.translate import rbac_matchers as matchers
from weft.translate.external_authorization import ask_about_connections, ask_about_requests
from weft.translate.protos import packed
from weft.translate.rbac import Connections, nothing, rbac_policy
from weft.translate.view import GroupView

HTTP_FILTER = "envoy.filters.http.rbac"  # the filter's name, and the metadata namespace of its results
NETWORK_FILTER = "envoy.filters.network.rbac"

# Prefixes of `shadow_engine_result` and `shadow_effective_policy_id` in the metadata, and in the statistics.
DRY_RUN_ALLOW, DRY_RUN_DENY, DRY_RUN_CUSTOM = "istio_dry_run_allow_", "istio_dry_run_deny_", "istio_dry_run_custom_"
AUDITED = "istio_audit_"
ASKED = "istio_ext_authz_"

DISGUISED_PATH, DISGUISED_HEADER = "weft-disguised-path", "weft-disguised-header"
_MOST_SPELLED_OUT = 4  # a header name with up to this many dashes is denied in all spellings, with `_` for any of them


class _Decision(msgspec.Struct, frozen=True):
    """The config of one RBAC filter: the rules that it enforces, its shadow rules, and the prefix of the metadata keys
    under which the results of the shadow rules are written."""

    rules: RBAC | None = None
    shadow: RBAC | None = None
    prefix: str = ""  # of the metadata that the shadow rules write


def http_filters(view: GroupView, connections: Connections = Connections()) -> tuple[HttpFilter, ...]:  # noqa: B008 - frozen
    """Return the HTTP filters that enforce the policies of a group. `connections`: the kind of connections that the
    filters are for."""
    policies = _in_force(view)
    result: list[HttpFilter] = []
    if disguises := _disguises(policies):
        result.append(_http(_Decision(RBAC(action=RBAC.DENY, policies=disguises))))
    for name, chosen, prefix in _by_provider(policies):
        provider = view.authorizer(name)
        if provider is None:
            result.append(_http(_unanswered(chosen, name, view.settings, http=True, connections=connections)))
            continue
        result.append(_http(_question(chosen, name, prefix, view.settings, http=True, connections=connections)))
        result.append(ask_about_requests(provider, HTTP_FILTER, f"{prefix}shadow_effective_policy_id"))
    result += map(_http, _decisions(policies, view.settings, http=True, connections=connections))
    return tuple(result)


def network_filters(view: GroupView, connections: Connections = Connections()) -> tuple[Filter, ...]:  # noqa: B008 - frozen
    policies = _in_force(view)
    result: list[Filter] = []
    for name, chosen, prefix in _by_provider(policies):
        provider = view.authorizer(name)
        if provider is None or not provider.grpc:  # an HTTP authorizer cannot decide about a connection
            result.append(_network(_unanswered(chosen, name, view.settings, http=False, connections=connections)))
            continue
        result.append(_network(_question(chosen, name, prefix, view.settings, http=False, connections=connections)))
        result.append(ask_about_connections(provider, NETWORK_FILTER, f"{prefix}shadow_effective_policy_id"))
    result += map(_network, _decisions(policies, view.settings, http=False, connections=connections))
    return tuple(result)


def noted(view: GroupView) -> frozenset[str]:
    """Return the metadata prefixes under which the filters of the group's policies write their results for a
    request. The prefix of enforced rules is ""."""
    policies = _in_force(view)
    prefixes = {prefix for _, _, prefix in _by_provider(policies)}
    prefixes |= {"" for each in view.authentication if each.refused}  # an RBAC filter, too, enforces a rejected one
    for policy in policies:
        if policy.dry_run:
            dry_run_prefixes = {Action.ALLOW: DRY_RUN_ALLOW, Action.DENY: DRY_RUN_DENY, Action.CUSTOM: DRY_RUN_CUSTOM}
            prefixes |= {dry_run_prefixes[policy.action]} if policy.action in dry_run_prefixes else set()
        else:
            prefixes.add(AUDITED if policy.action is Action.AUDIT else "")
    return frozenset(prefixes)


def rule_id(policy: AuthorizationPolicy, number: int) -> str:
    """Return the name of the rule at position `number` of a policy, as it appears in Envoy's config, in access logs and
    in explanations."""
    name = f"ns[{policy.namespace}]-policy[{policy.name}]"
    return f"{name}-refused" if policy.refused else f"{name}-rule[{number}]"


def _in_force(view: GroupView) -> tuple[AuthorizationPolicy, ...]:
    return tuple(policy for policy in view.authorization if not policy.targets or view.kind is ProxyKind.GATEWAY)


def _decisions(
    policies: tuple[AuthorizationPolicy, ...], settings: Settings, *, http: bool, connections: Connections
) -> Iterable[_Decision]:
    tried = [policy for policy in policies if policy.action is Action.CUSTOM and policy.dry_run]
    if tried:
        yield _Decision(shadow=_rules(tried, settings, http=http, connections=connections), prefix=DRY_RUN_CUSTOM)
    audited = [policy for policy in policies if policy.action is Action.AUDIT and not policy.dry_run]
    if audited:
        marks = _rules(audited, settings, http=http, connections=connections)
        hint = RBAC(action=RBAC.LOG)
        for name, rule in marks.policies.items():
            hint.policies[name].CopyFrom(rule)
        yield _Decision(hint, marks, AUDITED)
    for action, prefix in ((Action.DENY, DRY_RUN_DENY), (Action.ALLOW, DRY_RUN_ALLOW)):
        chosen = [policy for policy in policies if policy.action is action]
        enforced = [policy for policy in chosen if not policy.dry_run]
        tried = [policy for policy in chosen if policy.dry_run]
        if chosen:
            yield _Decision(
                _rules(enforced, settings, http=http, connections=connections) if enforced else None,
                _rules(tried, settings, http=http, connections=connections) if tried else None,
                prefix if tried else "",
            )


def _by_provider(
    policies: tuple[AuthorizationPolicy, ...],
) -> Iterable[tuple[str, list[AuthorizationPolicy], str]]:
    """Yield for each external authorizer: its name, its CUSTOM policies, and the metadata prefix that marks the
    requests that it must decide."""
    chosen = [policy for policy in policies if policy.action is Action.CUSTOM and not policy.dry_run]
    for number, name in enumerate(dict.fromkeys(policy.provider for policy in chosen)):
        prefix = f"{ASKED}{number}_" if number else ASKED
        yield name, [policy for policy in chosen if policy.provider == name], prefix


def _question(
    policies: list[AuthorizationPolicy],
    provider: str,
    prefix: str,
    settings: Settings,
    *,
    http: bool,
    connections: Connections,
) -> _Decision:
    """Return the shadow rules that mark in the metadata which requests an external authorizer must decide. The mark
    names the authorizer and the rule: if an authorizer denies a request, its response contains neither. `http`: whether
    the rules are for an HTTP filter. `connections`: as for `http_filters`. `policies`: the CUSTOM policies of the
    authorizer `provider`. `prefix`: the prefix of the mark's metadata keys."""
    rules = _named(_rules(policies, settings, http=http, connections=connections), f"provider[{provider}]")
    return _Decision(shadow=rules, prefix=prefix)


def _unanswered(
    policies: list[AuthorizationPolicy], provider: str, settings: Settings, *, http: bool, connections: Connections
) -> _Decision:
    """Return rules that deny all requests about which the external authorizer `provider` would have to decide. They are
    used if there is no such authorizer, or if it can decide only about HTTP requests and this is a TCP connection.
    `http`: whether the rules are for an HTTP filter. `connections`: as for `http_filters`. `policies`: the CUSTOM
    policies of this authorizer."""
    return _Decision(
        _named(_rules(policies, settings, http=http, connections=connections), f"provider[{provider}]-not-available")
    )


def _named(rules: RBAC, more: str) -> RBAC:
    result = RBAC(action=RBAC.DENY)
    for name, rule in rules.policies.items():
        result.policies[f"{name}-{more}"].CopyFrom(rule)
    return result


def _rules(
    policies: Iterable[AuthorizationPolicy], settings: Settings, *, http: bool, connections: Connections
) -> RBAC:
    """Translate policies, all with the same action, to one set of RBAC rules. `http`: whether the rules are for an HTTP
    filter, not a network filter. `connections`: as for `http_filters`."""
    result = RBAC()
    for policy in policies:
        if policy.action is not Action.ALLOW:
            result.action = RBAC.DENY
        for number, rule in enumerate(policy.rules):
            translated = rbac_policy(rule, policy.action, settings, http=http, connections=connections)
            if translated is not None:
                result.policies[rule_id(policy, number)].CopyFrom(translated)
        if not policy.rules:
            result.policies[rule_id(policy, 0)].CopyFrom(nothing())
    return result


def _disguises(policies: Iterable[AuthorizationPolicy]) -> Mapping[str, RbacPolicy]:
    """Return RBAC policies, by name, that deny requests with spellings that only serve to bypass a policy: dot segments
    in a path that Envoy's normalization misses; a header name that some servers treat as one that a policy matches; and
    a header value between spaces, which HTTP/2 transports and servers strip. Empty if no enforced policy matches paths
    or headers."""
    enforced = (policy for policy in policies if not policy.dry_run and policy.action is not Action.AUDIT)
    rules = [rule for policy in enforced for rule in policy.rules]
    result: dict[str, RbacPolicy] = {}
    if any(each.paths or each.not_paths for rule in rules for each in rule.operations):
        dots = PathMatcher(path=matchers.regex(matchers.DISGUISED_DOTS))
        result[DISGUISED_PATH] = RbacPolicy(permissions=[Permission(url_path=dots)], principals=[Principal(any=True)])
    headers = sorted({each.path[0] for rule in rules for each in rule.conditions if each.key == "request.headers"})
    if headers:
        others = sorted(spelling for header in headers for spelling in _spellings(header))
        spaced = matchers.regex(matchers.BETWEEN_SPACES)
        disguised = [
            *(HeaderMatcher(name=name, present_match=True) for name in others),
            *(HeaderMatcher(name=name, string_match=spaced) for name in headers),
        ]
        result[DISGUISED_HEADER] = RbacPolicy(
            permissions=[Permission(header=each) for each in disguised], principals=[Principal(any=True)]
        )
    return result


def _spellings(header: str) -> Iterable[str]:
    """Return the other spellings of a header's name, with underscores for some or all of its dashes: CGI and its
    successors read `x_role` as `x-role`. A name with more than 4 dashes has too many such spellings; only the one with
    all dashes replaced is returned."""
    parts = header.split("-")
    if len(parts) - 1 > _MOST_SPELLED_OUT:
        return [header.replace("-", "_")]
    joints = product("-_", repeat=len(parts) - 1)
    written = ("".join(part + joint for part, joint in zip(parts, (*each, ""), strict=True)) for each in joints)
    return [each for each in written if each != header]


def _http(decision: _Decision) -> HttpFilter:
    return HttpFilter(name=HTTP_FILTER, typed_config=packed(_filled(http_rbac.RBAC(), decision)))


def _network(decision: _Decision) -> Filter:
    return Filter(name=NETWORK_FILTER, typed_config=packed(_filled(network_rbac.RBAC(stat_prefix="tcp."), decision)))


def _filled(config: http_rbac.RBAC | network_rbac.RBAC, decision: _Decision) -> http_rbac.RBAC | network_rbac.RBAC:
    if decision.rules is not None:
        config.rules.CopyFrom(decision.rules)
        if decision.rules.action == RBAC.LOG and isinstance(config, http_rbac.RBAC):
            config.rules_stat_prefix = decision.prefix  # else it would look like an enforced decision
    if decision.shadow is not None:
        config.shadow_rules.CopyFrom(decision.shadow)
        config.shadow_rules_stat_prefix = decision.prefix
    return config
