"""Describes why a rule of a policy does not match. Input: an RBAC policy and the request. Output: the unmet
conditions as text, such as `method POST is not GET or HEAD`.

Rule: this module runs after the decision and never decides anything. Conditions that it cannot describe are left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envoy.config.core.v3.address_pb2 import CidrRange
from envoy.config.rbac.v3.rbac_pb2 import Permission, Policy, Principal
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.path_pb2 import PathMatcher
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher

from weft.explain import matchers
from weft.explain.rule import GuardInput, is_, permits

_MOST_NAMED = 4  # accepted values that a message lists
_SPIFFE = "spiffe://"
_NAMED = {":method": "method", ":authority": "host"}
_NAMESPACE = re.compile(r"spiffe://\.\+/ns/((?:\[\^/\]\*|[^/])*)/\.\*")
_STARRED_DOMAIN = re.compile(r"spiffe://((?:\[\^/\]\*|[^/])*)/\.\*")
_DOMAIN = re.compile(r"spiffe://([^/]+)/")
_ACCOUNT = re.compile(r"spiffe://\.\+/ns/([^/]*)/\(\?:\.\+/\)\?sa/([^/]*)\(\?:/\.\+\)\?")

# The checked property, as the subject of a sentence, and the value that the rule accepts. If the value is None, the
# subject is the whole message.
Miss = tuple[str, str | None]


def unmet(policy: Policy, seen: GuardInput) -> str:
    """The conditions of a policy that the request or connection `seen` does not meet, as text; "" if none can be
    described. A policy matches if one of its permissions and one of its principals match."""
    misses: list[Miss] = []
    if not any(permits(each, seen) for each in policy.permissions):
        misses += _of_ways([[*_of_permission(each, seen)] for each in policy.permissions])
    if not any(is_(each, seen) for each in policy.principals):
        misses += _of_ways([[*_of_principal(each, seen)] for each in policy.principals])
    return _sentence(misses)


def _of_ways(ways: list[list[Miss]]) -> list[Miss]:
    """Combines the unmet conditions of several alternatives (`ways`), none of which matches. A `Miss` is a subject,
    such as `method POST`, and an accepted value. If each alternative has one Miss and all have the same subject, all of
    them are returned, so that the accepted values are listed together: `method POST is not GET or HEAD`. Else the
    alternatives become one text, joined with `or else`."""
    described = [way for way in ways if way]
    if all(len(way) == 1 for way in described) and len({way[0][0] for way in described}) == 1:
        return [way[0] for way in described]
    if len(described) == 1:
        return described[0]
    return [("; or else ".join(map(_sentence, described)), None)] if described else []


def _sentence(misses: Iterable[Miss]) -> str:
    wanted: dict[str, list[str]] = {}
    for subject, value in misses:
        values = wanted.setdefault(subject, [])
        if value is not None and value not in values:
            values.append(value)
    return " and ".join(f"{subject} is not {_either(each)}" if each else subject for subject, each in wanted.items())


def _either(values: list[str]) -> str:
    if len(values) > _MOST_NAMED:
        values = [*values[:_MOST_NAMED], f"{len(values) - _MOST_NAMED} more"]
    *first, last = values
    return f"{', '.join(first)} or {last}" if first else last


def _of_permission(permission: Permission, seen: GuardInput) -> Iterable[Miss]:
    """The conditions of a permission that the request (`seen`) does not meet. For a `not_rule`: the conditions inside
    it that the request does meet."""
    kind = permission.WhichOneof("rule")
    connection = seen.connection
    match kind:
        case "and_rules":
            return [
                miss
                for each in permission.and_rules.rules
                if not permits(each, seen)
                for miss in _of_permission(each, seen)
            ]
        case "or_rules":
            return _of_ways([[*_of_permission(each, seen)] for each in permission.or_rules.rules])
        case "not_rule":
            inner = permission.not_rule
            matching = inner.or_rules.rules if inner.HasField("or_rules") else [inner]
            return _excluded(miss for each in matching if permits(each, seen) for miss in _of_permission(each, seen))
        case "header":
            return [_of_header(permission.header, seen)]
        case "url_path":
            return [_of_path(permission.url_path, seen)]
        case "destination_ip":
            return [(f"destination {connection.address}", _range(permission.destination_ip))]
        case "destination_port":
            return [(f"port {connection.port}", str(permission.destination_port))]
        case "metadata":
            return [_of_metadata(permission.metadata, seen.metadata)]
        case "requested_server_name":
            return [(f"server name {connection.server_name or '(none)'}", _text(permission.requested_server_name))]
    return []


def _of_principal(principal: Principal, seen: GuardInput) -> Iterable[Miss]:
    kind = principal.WhichOneof("identifier")
    match kind:
        case "and_ids":
            return [miss for each in principal.and_ids.ids if not is_(each, seen) for miss in _of_principal(each, seen)]
        case "or_ids":
            return _of_ways([[*_of_principal(each, seen)] for each in principal.or_ids.ids])
        case "not_id":
            inner = principal.not_id
            matching = inner.or_ids.ids if inner.HasField("or_ids") else [inner]
            return _excluded(miss for each in matching if is_(each, seen) for miss in _of_principal(each, seen))
        case "authenticated":
            return [_of_caller(principal.authenticated.principal_name, seen)]
        case "direct_remote_ip" | "source_ip":
            return [(f"source address {seen.connection.source}", _range(getattr(principal, kind)))]
        case "remote_ip":
            return [(f"remote address {seen.remote or seen.connection.source}", _range(principal.remote_ip))]
        case "header":
            return [_of_header(principal.header, seen)]
        case "url_path":
            return [_of_path(principal.url_path, seen)]
        case "metadata":
            return [_of_metadata(principal.metadata, seen.metadata)]
    return []


def _excluded(about: Iterable[Miss]) -> list[Miss]:
    """Describe why a negated condition, such as `notMethods`, fails: the request has a value that the condition
    excludes. `about`: the subject, such as `method POST`, and the value of each inner condition that the request meets.
    Returns one Miss for each subject, such as `method POST is excluded`."""
    return [(f"{subject} is excluded", None) for subject in dict.fromkeys(subject for subject, _ in about)]


def _of_caller(wanted: StringMatcher, seen: GuardInput) -> Miss:
    if not seen.identities:
        return "the caller has presented no certificate", None
    return f"caller {seen.identities[0].removeprefix(_SPIFFE)}", _identity(wanted)


def _of_path(matcher: PathMatcher, seen: GuardInput) -> Miss:
    return f"path {matchers.without_query(seen.headers.value(':path'))}", _text(matcher.path)


def _of_header(matcher: HeaderMatcher, seen: GuardInput) -> Miss:
    """The condition on a header that the request (`seen`) does not meet. The value of the header is left out, because
    it may be a secret; only method and host are shown."""
    if not seen.headers.has(matcher.name):
        return f"there is no header {matcher.name}", None
    name = _NAMED.get(matcher.name)
    subject = f"{name} {seen.headers.value(matcher.name)}" if name else f"header {matcher.name}"
    return subject, _text(matcher.string_match)


def _of_metadata(matcher: MetadataMatcher, known: Mapping[str, Any]) -> Miss:
    keys = [segment.key for segment in matcher.path]
    if keys[:1] != ["payload"]:
        return f"{matcher.filter} {'.'.join(keys)}", ", ".join(_values(matcher.value)) or None
    value: Any = known.get(matcher.filter, {}).get("payload", {})
    if not value:
        return "there is no verified token", None
    claim = ".".join(keys[1:])
    for key in keys[1:]:
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None:
        return f"the token has no claim {claim}", None
    wanted = list(dict.fromkeys(_values(matcher.value)))
    shown = ", ".join(map(str, value)) if isinstance(value, list) else value
    return f"claim {claim} ({shown})", _either(wanted) if wanted else None


def _values(matcher: ValueMatcher) -> Iterator[str]:
    kind = matcher.WhichOneof("match_pattern")
    if kind == "or_match":
        for each in matcher.or_match.value_matchers:
            yield from _values(each)
    elif kind == "list_match":
        yield from _values(matcher.list_match.one_of)
    elif kind == "string_match":
        yield _text(matcher.string_match)


def _identity(wanted: StringMatcher) -> str:
    pattern = wanted.safe_regex.regex
    if match := _NAMESPACE.fullmatch(pattern):
        return f"in namespace {_unescaped(match[1])}"
    if match := _ACCOUNT.fullmatch(pattern):
        return f"service account {_unescaped(match[1])}/{_unescaped(match[2])}"
    if match := _STARRED_DOMAIN.fullmatch(pattern):
        return f"of trust domain {_unescaped(match[1])}"
    if match := _DOMAIN.fullmatch(wanted.prefix):
        return f"of trust domain {match[1]}"
    return _text(wanted).removeprefix(_SPIFFE)


def _text(wanted: StringMatcher) -> str:
    """The accepted value in the notation of a policy: `GET`, `/api/*`, `*.json`."""
    kind = wanted.WhichOneof("match_pattern")
    match kind:
        case "exact":
            return str(wanted.exact)
        case "prefix":
            return f"{wanted.prefix}*"
        case "suffix":
            return f"*{wanted.suffix}"
        case "safe_regex":
            pattern = wanted.safe_regex.regex
            return "anything" if pattern == ".+" else f"a match of {pattern}"
    return "anything"


def _unescaped(pattern: str) -> str:
    return re.sub(r"\\([^A-Za-z0-9])", r"\1", pattern.replace("[^/]*", "*"))


def _range(wanted: CidrRange) -> str:
    return f"in {wanted.address_prefix}/{wanted.prefix_len.value}"
