"""Reads Istio's AuthorizationPolicy. A policy that cannot be enforced exactly as written is rejected, and a rejected
policy without an earlier valid version denies all requests to the workloads it selects: see
`closed_authorization_policy`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

import msgspec

from weft.api.authorization_values import (
    check_hosts,
    check_methods,
    check_paths,
    check_principals,
    check_stars,
    check_trust_domains,
)
from weft.api.metadata import Meta, selector
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_header, is_host
from weft.api.targets import reaches_gateways, read_targets
from weft.base.suggest import did_you_mean
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Condition, Operation, Source
from weft.model.names import Labels
from weft.model.value import Value

DRY_RUN = "istio.io/dry-run"
_REVISION = "istio.io/rev"  # selects the control plane that reads the policy
MOST_RULES = 1_000
MOST_VALUES = 20_000  # of one policy, in all its rules: about 2 MB of Envoy config
MOST_SERVICE_ACCOUNTS = 16  # Istio's own limit

# Keys of conditions without a name in brackets. The keys below have one, such as `request.headers[x-user]`.
PLAIN_KEYS = (
    "source.ip",
    "remote.ip",
    "source.namespace",
    "source.principal",
    "source.serviceAccount",
    "source.trustDomain",
    "request.auth.principal",
    "request.auth.audiences",
    "request.auth.presenter",
    "destination.ip",
    "destination.port",
    "connection.sni",
)
HEADERS, CLAIMS, FILTERS = "request.headers", "request.auth.claims", "experimental.envoy.filters"
_REPLACED = {
    "destination.namespace": "the policy applies to its own namespace",
    "destination.labels": "use the policy's `selector`",
    "destination.name": "use the policy's `selector`",
    "destination.user": "use the policy's `selector`",
}
_BELOW = {
    part: tuple(name for word in names.split() for name in (word, f"not{word[0].upper()}{word[1:]}"))
    for part, names in {
        "source": "principals requestPrincipals namespaces ipBlocks remoteIpBlocks serviceAccounts trustDomains",
        "operation": "hosts ports methods paths",
    }.items()
}
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


def read_authorization_policy(root: Fields, meta: Meta) -> tuple[AuthorizationPolicy, ...]:
    spec = root.fields("spec")
    if spec is None:
        if root.has("spec"):
            return ()
        spec = root.embedded("spec", {})
    # If the selector cannot be parsed, the policy that replaces this rejected one selects the whole namespace.
    selected: Labels = selector(spec, "selector", "matchLabels") or ()
    if spec.report.is_wrong((*spec.path, "selector")):
        selected = ()
    action = Action(spec.choice("action", tuple(Action), default="ALLOW"))
    policy = AuthorizationPolicy(
        name=meta.name,
        namespace=meta.namespace,
        action=action,
        selector=selected,
        rules=_rules(spec, action, meta),
        provider=_provider(spec, action),
        dry_run=_dry_run(root, action, meta),
        targets=read_targets(spec),
        created=meta.created,
        origin=meta.origin,
    )
    count = sum(_size(rule) for rule in policy.rules)
    if count > MOST_VALUES:
        what = f"the rules have {count} values, and at most {MOST_VALUES} can be enforced"
        spec.error("rules", what, "use prefixes and CIDR ranges, or several policies")
    return (policy,)


def closed_authorization_policy(values: tuple[Value, ...], meta: Meta) -> tuple[Value, ...]:
    """Return the policy that replaces a rejected policy without an earlier valid version: it denies all requests.
    `values`: what could be parsed of the rejected policy. The result is empty if the rejected policy would not have
    denied any request (AUDIT, a dry run, or targets that are no gateways). `meta`: the metadata of the rejected
    policy."""
    meant = next((value for value in values if isinstance(value, AuthorizationPolicy)), None)
    if meant is None:
        meant = AuthorizationPolicy(meta.name, meta.namespace, created=meta.created, origin=meta.origin)
    bound = meant.targets if not meant.selector else ()
    if meant.action is Action.AUDIT or meant.dry_run or (bound and not reaches_gateways(bound)):
        return ()
    shut = {"action": Action.DENY, "rules": (AuthorizationRule(),), "provider": "", "targets": bound, "refused": True}
    return (msgspec.structs.replace(meant, **shut),)


def _provider(spec: Fields, action: Action) -> str:
    fields = spec.fields("provider")
    name = fields.text("name", required=True, most=253) if fields else ""
    if action is Action.CUSTOM and fields is None:
        hint = "`provider: {name: …}` names one of the `extensionProviders` of the MeshConfig"
        spec.lacks("provider", what="a CUSTOM policy needs a `provider`", hint=hint)
    elif action is not Action.CUSTOM and fields is not None:
        spec.error("provider", f"`provider` is only for CUSTOM policies, and the action of this policy is {action}")
    return name


def _dry_run(root: Fields, action: Action, meta: Meta) -> bool:
    written = dict(meta.annotations).get(DRY_RUN)
    at = ("metadata", "annotations", DRY_RUN)
    _check_annotations(root, meta)
    if written is None or written in _FALSE or root.report.is_wrong(at):
        return False
    if written not in _TRUE:
        root.error(at, f"`{DRY_RUN}` must be true or false, not `{written[:40]}`")
        return False
    if action in (Action.AUDIT, Action.CUSTOM):
        what = "the authorizer is not called" if action is Action.CUSTOM else "requests are not audited"
        root.warning(at, f"a dry run of a policy with action {action} only counts what it matches: {what}")
    return True


def _check_annotations(root: Fields, meta: Meta) -> None:
    """Warn about a misspelled dry run annotation, because without the annotation the policy is enforced."""
    for where, held in (("annotations", meta.annotations), ("labels", meta.labels)):
        for name, _ in held:
            prefix, _, word = name.rpartition("/")
            near = "dryrun" in word.lower().replace("-", "").replace("_", "")
            if name == DRY_RUN and where == "annotations":
                continue
            if near or (prefix == "istio.io" and where == "annotations" and name != _REVISION):
                what = f"`{name[:80]}` in the {where} has no effect on an AuthorizationPolicy"
                hint = f'did you mean the annotation `{DRY_RUN}: "true"`? without it the policy is enforced'
                root.warning(("metadata", where, name), what, hint if near else f"known here: {DRY_RUN}")


def _rules(spec: Fields, action: Action, meta: Meta) -> tuple[AuthorizationRule, ...]:
    rules = spec.items("rules")
    if not spec.raw("rules") and action in (Action.DENY, Action.CUSTOM):
        spec.lacks(
            "rules",
            what=f"a {action} policy without `rules` never matches, and has no effect",
            hint="write `rules: [{}]` to match every request",
        )
    if len(rules) > MOST_RULES:
        spec.error("rules", f"the policy has {len(rules)} rules, and at most {MOST_RULES} can be enforced")
    return tuple(_rule(rule, meta) for rule in rules)


def _rule(rule: Fields, meta: Meta) -> AuthorizationRule:
    sources = [_source(fields, meta) for item in _listed(rule, "from") if (fields := _inner(item, "source"))]
    operations = [_operation(fields) for item in _listed(rule, "to") if (fields := _inner(item, "operation"))]
    conditions = [_condition(item, meta) for item in rule.items("when")]
    return AuthorizationRule(tuple(sources), tuple(operations), tuple(conditions), rule.line)


def _listed(rule: Fields, name: str) -> list[Fields]:
    """Return the mappings of the list `name` in a rule; [] if it is not set. An empty list is an error: it would
    match nothing, which is never intended."""
    if rule.has(name) and rule.raw(name) == []:
        rule.error(name, f"`{name}` is empty", f"leave `{name}` out to match everything")
    return rule.items(name)


def _inner(item: Fields, name: str) -> Fields | None:
    if item.outdented(name, _BELOW[name]):
        return None
    fields = item.fields(name, required=True)
    if fields is not None and not any(value is not None for value in (item.raw(name) or {}).values()):
        item.error(name, f"`{name}` is empty", f"leave the whole entry out to match every {name}")
    return fields


def _source(source: Fields, meta: Meta) -> Source:
    accounts, not_accounts = (
        _service_accounts(source, name, _values(source, name), meta)
        for name in ("serviceAccounts", "notServiceAccounts")
    )
    others = ("principals", "notPrincipals", "namespaces", "notNamespaces")
    for name in ("serviceAccounts", "notServiceAccounts"):
        if source.has(name) and any(source.has(other) for other in others):
            source.error(
                name,
                f"`{name}` cannot be combined with principals or namespaces",
                "all of them match the caller's identity",
            )
    return Source(
        principals=check_principals(source, "principals", _values(source, "principals")),
        not_principals=check_principals(source, "notPrincipals", _values(source, "notPrincipals")),
        request_principals=check_stars(source, "requestPrincipals", _values(source, "requestPrincipals")),
        not_request_principals=check_stars(source, "notRequestPrincipals", _values(source, "notRequestPrincipals")),
        namespaces=_values(source, "namespaces"),
        not_namespaces=_values(source, "notNamespaces"),
        ip_blocks=_ranges(source, "ipBlocks", _values(source, "ipBlocks")),
        not_ip_blocks=_ranges(source, "notIpBlocks", _values(source, "notIpBlocks")),
        remote_ip_blocks=_ranges(source, "remoteIpBlocks", _values(source, "remoteIpBlocks")),
        not_remote_ip_blocks=_ranges(source, "notRemoteIpBlocks", _values(source, "notRemoteIpBlocks")),
        service_accounts=accounts,
        not_service_accounts=not_accounts,
        trust_domains=check_trust_domains(source, "trustDomains", _values(source, "trustDomains")),
        not_trust_domains=check_trust_domains(source, "notTrustDomains", _values(source, "notTrustDomains")),
    )


def _operation(operation: Fields) -> Operation:
    return Operation(
        hosts=check_hosts(operation, "hosts", _values(operation, "hosts")),
        not_hosts=check_hosts(operation, "notHosts", _values(operation, "notHosts")),
        ports=_ports(operation, "ports", _values(operation, "ports")),
        not_ports=_ports(operation, "notPorts", _values(operation, "notPorts")),
        methods=check_methods(operation, "methods", _values(operation, "methods")),
        not_methods=check_methods(operation, "notMethods", _values(operation, "notMethods")),
        paths=check_paths(operation, "paths", _values(operation, "paths")),
        not_paths=check_paths(operation, "notPaths", _values(operation, "notPaths")),
    )


def _condition(when: Fields, meta: Meta) -> Condition:
    written = when.text("key", required=True, most=4_096)
    key, path = _key(when, written)
    values, not_values = _values(when, "values"), _values(when, "notValues")
    if not values and not not_values:
        when.lacks("values", "notValues", what=f"the condition on {written} has neither `values` nor `notValues`")
    sides = []
    for name, given in (("values", values), ("notValues", not_values)):
        match key:
            case "source.ip" | "remote.ip" | "destination.ip":
                given = _ranges(when, name, given)
            case "destination.port":
                given = tuple(str(port) for port in _ports(when, name, given))
            case "source.serviceAccount":
                given = _service_accounts(when, name, given, meta)
            case "source.principal":
                given = check_principals(when, name, given)
            case "source.trustDomain":
                given = check_trust_domains(when, name, given)
            case "source.namespace":
                pass
            case _:
                given = check_stars(when, name, given)
        sides.append(given)
    return Condition(key, path, sides[0], sides[1])


def _key(when: Fields, written: str) -> tuple[str, tuple[str, ...]]:
    if written in PLAIN_KEYS or not written:
        return written, ()
    key, bracket, _ = written.partition("[")
    names = tuple(_BRACKETS.findall(written[len(key) :]))
    well_formed = bool(bracket) and written[len(key) :] == "".join(f"[{name}]" for name in names)
    if key == HEADERS and well_formed and len(names) == 1:
        if is_header(names[0]) or names[0] in (":method", ":authority", ":path", ":scheme"):
            return key, (names[0].lower(),)
        when.error("key", f"`{names[0][:80]}` is not a header name")
    elif key == CLAIMS and well_formed:
        return key, names
    elif key.startswith(f"{FILTERS}.") and bracket and written.endswith("]") and written[len(key) + 1 : -1]:
        return FILTERS, (key.removeprefix("experimental."), written[len(key) + 1 : -1])
    elif key in (HEADERS, CLAIMS) or key.startswith(FILTERS):
        when.error("key", f"`{written[:80]}` is not a key", f"write `{key}[NAME]`, without quotes")
    elif key in _REPLACED:
        when.error("key", f"the key `{key}` no longer exists", _REPLACED[key])
    else:
        known = (*PLAIN_KEYS, f"{HEADERS}[NAME]", f"{CLAIMS}[NAME]")
        when.error("key", f"unknown key `{written[:80]}`", did_you_mean(written[:80], known))
    return written, ()


def _values(fields: Fields, name: str) -> tuple[str, ...]:
    found = fields.texts(name, most=2_048)
    if fields.has(name) and fields.raw(name) == []:
        fields.error(name, f"`{name}` is empty", f"leave `{name}` out to match everything")
    for index, value in enumerate(found):
        if not value and not fields.report.is_wrong((*fields.path, name, index)):
            fields.error((name, index), f"`{name}` contains an empty text", 'to match any value, write "*"')
    return found  # including empty values, so that later values keep their index


def _ranges(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in _written(values):
        _, slash, length = value.partition("/")
        try:
            ipaddress.ip_network(value, strict=False)
            good = "%" not in value and (not slash or (length.isascii() and length.isdigit()))
        except ValueError:
            good = False
        if not good:
            fields.error((name, index), f"`{value[:80]}` is not an IP address or CIDR range", "for example 10.0.0.0/8")
    return values


def _ports(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[int, ...]:
    numbers = []
    for index, value in _written(values):
        if not (value.isascii() and value.isdigit() and len(value) <= 5 and 0 < int(value) <= 65_535):
            fields.error((name, index), f"a port is a number between 1 and 65535, not `{value[:40]}`")
        else:
            numbers.append(int(value))
    return tuple(numbers)


def _service_accounts(fields: Fields, name: str, values: tuple[str, ...], meta: Meta) -> tuple[str, ...]:
    """Return `values`, the service accounts in the field `name` of `fields`, as NAMESPACE/NAME. A name without a
    namespace is in the policy's own namespace. Invalid names, and too many names, are errors."""
    accounts = []
    for index, value in _written(values):
        namespace, slash, account = value.rpartition("/")
        namespace = namespace if slash else meta.namespace
        if not is_dns_label(namespace) or not is_host(account) or account != account.lower():
            fields.error(
                (name, index), f"`{value[:80]}` is not a service account", "write NAMESPACE/NAME or NAME, without `*`"
            )
        accounts.append(f"{namespace}/{account}")
    if len(values) > MOST_SERVICE_ACCOUNTS:
        fields.error(
            name, f"`{name}` has {len(values)} service accounts, and at most {MOST_SERVICE_ACCOUNTS} may be listed"
        )
    return tuple(accounts)


def _written(values: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    return ((index, value) for index, value in enumerate(values) if value)


def _size(rule: AuthorizationRule) -> int:
    parts = (*rule.sources, *rule.operations)
    return sum(len(held) for part in parts for held in msgspec.structs.astuple(part)) + sum(
        len(condition.values) + len(condition.not_values) for condition in rule.conditions
    )
