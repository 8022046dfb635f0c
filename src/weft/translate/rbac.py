"""Translates one rule of an AuthorizationPolicy to an RBAC policy: operations become permissions, sources become
principals, and a condition becomes a permission or a principal, depending on its key.

On a port that is not HTTP, there are no hosts, paths, methods, headers or tokens. As in Istio, an ALLOW rule with such
a condition is left out there. A rule that denies loses the condition, and so denies more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from envoy.config.rbac.v3.rbac_pb2 import Permission, Principal
from envoy.config.rbac.v3.rbac_pb2 import Policy as RbacPolicy
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher

from weft.model.authorization_policy import Action, AuthorizationRule, Condition, Operation, Source
from weft.model.settings import Settings
from weft.translate import rbac_matchers as matchers

SPIFFE = "spiffe://"
_PERMISSIONS = frozenset({"destination.ip", "destination.port", "connection.sni", "experimental.envoy.filters"})


class Connections(msgspec.Struct, frozen=True):
    """The kind of connections that guards are for. `published`: the port of a gateway that callers reach through a Unix
    socket; else 0. On such a socket the connection has no IP address and no port of the gateway: the caller's address
    comes from the PROXY header, and `published` is the destination port. `unverified`: client certificates are not
    verified, so the names in them match no policy."""

    published: int = 0
    unverified: bool = False


def rbac_policy(
    rule: AuthorizationRule,
    action: Action,
    settings: Settings,
    *,
    http: bool,
    connections: Connections = Connections(),  # noqa: B008 - frozen
) -> RbacPolicy | None:
    """Translate a rule; None if it is an ALLOW rule that needs HTTP and the port is not HTTP. `action`: that of the
    policy. `connections`: as for `guards.guards_of`."""
    if not http and action is Action.ALLOW and rule.needs_http:
        return None
    builder = _Builder(action, settings, http=http, connections=connections)
    permissions = [_every(list(builder.operation(each))) for each in rule.operations]
    principals = [_every_id(list(builder.source(each))) for each in rule.sources]
    conditions = [condition for condition in rule.conditions if http or not condition.key.startswith("request.")]
    return RbacPolicy(
        permissions=[
            _every(
                [
                    *([_any(permissions)] if permissions else []),
                    *(part for each in conditions if each.key in _PERMISSIONS for part in builder.permission(each)),
                ]
            )
        ],
        principals=[
            _every_id(
                [
                    *([_any_id(principals)] if principals else []),
                    *(part for each in conditions if each.key not in _PERMISSIONS for part in builder.principal(each)),
                ]
            )
        ],
    )


def nothing() -> RbacPolicy:
    """Return an RBAC policy that matches no request."""
    return RbacPolicy(permissions=[_not(Permission(any=True))], principals=[Principal(any=True)])


def with_aliases(principals: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Return the principals with their aliases: during a migration between trust domains, a principal of one trust
    domain stands for the same principal in all trust domains of the mesh. `cluster.local` stands for the mesh's own
    trust domain, whatever its name."""
    domains = (settings.trust_domain, *settings.trust_domain_aliases)
    aliases: dict[str, None] = {}
    for principal in principals:
        domain, *rest = principal.split("/")
        covered = [each for each in domains if each == domain or (domain[:1] == "*" and each.endswith(domain[1:]))]
        if len(rest) != 4 or domain == "*" or not (covered or domain == "cluster.local"):
            aliases[principal] = None
            continue
        for each in domains:
            aliases["/".join((domain if each in covered else each, *rest))] = None
    return tuple(aliases)


def with_domain_aliases(domains: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Return the trust domains with their aliases: one of the mesh's own trust domains stands for all of them. As in
    Istio, `cluster.local` and names with a `*` stand only for themselves."""
    own = (settings.trust_domain, *settings.trust_domain_aliases)
    return tuple(dict.fromkeys(each for domain in domains for each in (own if domain in own else (domain,))))


class _Builder:
    def __init__(self, action: Action, settings: Settings, *, http: bool, connections: Connections) -> None:
        self._keeps_out = action is not Action.ALLOW
        self._settings = settings
        self._http = http
        self._published = connections.published
        self._unverified = connections.unverified

    def operation(self, operation: Operation) -> Iterator[Permission]:
        if self._http:
            yield from self._both(
                operation.hosts,
                operation.not_hosts,
                lambda value, wide: Permission(header=matchers.host(value, wide=wide)),
            )
            yield from self._both(operation.methods, operation.not_methods, _method)
            yield from self._both(
                operation.paths,
                operation.not_paths,
                lambda value, wide: Permission(url_path=matchers.path(value, wide=wide)),
            )
        yield from self._both(tuple(map(str, operation.ports)), tuple(map(str, operation.not_ports)), self._port)

    def source(self, source: Source) -> Iterator[Principal]:
        yield from self._both_ids(
            self._aliases(source.principals), self._aliases(source.not_principals), self._certified(_peer)
        )
        if self._http:
            yield from self._both_ids(source.request_principals, source.not_request_principals, _token)
        yield from self._both_ids(source.namespaces, source.not_namespaces, self._certified(_namespace))
        yield from self._both_ids(
            source.service_accounts, source.not_service_accounts, self._certified(_service_account)
        )
        yield from self._trust_domains(source.trust_domains, source.not_trust_domains)
        yield from self._both_ids(source.ip_blocks, source.not_ip_blocks, self._peer_address)
        yield from self._both_ids(source.remote_ip_blocks, source.not_remote_ip_blocks, _caller_address)

    def permission(self, condition: Condition) -> Iterator[Permission]:
        def envoy_filter(value: str, wide: bool) -> Permission:
            owner, key = condition.path
            return Permission(metadata=matchers.metadata(owner, (key,), _filter_value(value)))

        make = {
            "destination.ip": _destination_address,
            "destination.port": self._port,
            "connection.sni": _server_name,
        }.get(condition.key, envoy_filter)
        yield from self._both(condition.values, condition.not_values, make)

    def principal(self, condition: Condition) -> Iterator[Principal]:
        values, not_values = condition.values, condition.not_values
        match condition.key:
            case "request.headers":
                name = condition.path[0]
                yield from self._both_ids(
                    values, not_values, lambda value: Principal(header=matchers.header(name, value))
                )
            case "request.auth.claims" | "request.auth.audiences" | "request.auth.presenter":
                names = {"request.auth.audiences": ("aud",), "request.auth.presenter": ("azp",)}
                path = names.get(condition.key, condition.path)
                if values:
                    yield Principal(metadata=matchers.claim(path, matchers.claimed(values)))
                if not_values:
                    yield _not_id(Principal(metadata=matchers.claim(path, matchers.claimed(not_values))))
            case "source.principal":
                yield from self._both_ids(self._aliases(values), self._aliases(not_values), self._certified(_peer))
            case "source.trustDomain":
                yield from self._trust_domains(values, not_values)
            case key:
                make = {
                    "source.ip": self._peer_address,
                    "remote.ip": _caller_address,
                    "source.namespace": self._certified(_namespace),
                    "source.serviceAccount": self._certified(_service_account),
                    "request.auth.principal": _token,
                }[key]
                yield from self._both_ids(values, not_values, make)

    def _port(self, value: str, wide: bool) -> Permission:
        if not self._published:
            return _destination_port(value, wide)
        here = Permission(any=True)
        return here if int(value) == self._published else _not(here)

    def _peer_address(self, value: str) -> Principal:
        """Match the peer's address: that of the connection, or on a published socket the one in the PROXY header."""
        range_ = matchers.address_range(value)
        return Principal(source_ip=range_) if self._published else Principal(direct_remote_ip=range_)

    def _certified(self, make: Callable[[str], Principal]) -> Callable[[str], Principal]:
        """Return `make`, which matches a name in the caller's certificate. If certificates are not verified, return a
        function whose result matches no caller."""
        return (lambda _: _not_id(Principal(any=True))) if self._unverified else make

    def _aliases(self, principals: tuple[str, ...]) -> tuple[str, ...]:
        return with_aliases(principals, self._settings)

    def _trust_domains(self, values: tuple[str, ...], not_values: tuple[str, ...]) -> Iterator[Principal]:
        accepted, excluded = (with_domain_aliases(each, self._settings) for each in (values, not_values))
        yield from self._both_ids(accepted, excluded, self._certified(_trust_domain))

    def _both(
        self, values: tuple[str, ...], not_values: tuple[str, ...], make: Callable[[str, bool], Permission]
    ) -> Iterator[Permission]:
        if values:
            yield _any([make(value, self._keeps_out) for value in values])
        if not_values:
            yield _not(_any([make(value, not self._keeps_out) for value in not_values]))

    def _both_ids(
        self, values: tuple[str, ...], not_values: tuple[str, ...], make: Callable[[str], Principal]
    ) -> Iterator[Principal]:
        if values:
            yield _any_id([make(value) for value in values])
        if not_values:
            yield _not_id(_any_id([make(value) for value in not_values]))


def _method(value: str, wide: bool) -> Permission:
    return Permission(header=matchers.method(value, wide=wide))


def _destination_port(value: str, wide: bool) -> Permission:
    return Permission(destination_port=int(value))


def _destination_address(value: str, wide: bool) -> Permission:
    return Permission(destination_ip=matchers.address_range(value))


def _server_name(value: str, wide: bool) -> Permission:
    return Permission(requested_server_name=matchers.text(value))


def _filter_value(value: str) -> ValueMatcher:
    """Match a metadata value of a filter. `[x]` matches a list that contains x."""
    if not (value.startswith("[") and value.endswith("]")):
        return ValueMatcher(string_match=matchers.text(value))
    result = ValueMatcher()
    result.list_match.one_of.string_match.CopyFrom(matchers.text(value.strip("[]")))
    return result


def _peer(value: str) -> Principal:
    return _authenticated(matchers.text(value, before="" if value == "*" else SPIFFE))


def _namespace(value: str) -> Principal:
    return _authenticated(matchers.namespace(value))


def _trust_domain(value: str) -> Principal:
    return _authenticated(matchers.trust_domain(value))


def _service_account(value: str) -> Principal:
    return _authenticated(matchers.service_account(value))


def _authenticated(name: StringMatcher) -> Principal:
    result = Principal()
    result.authenticated.principal_name.CopyFrom(name)
    return result


def _caller_address(value: str) -> Principal:
    """Match the address of the original client, from X-Forwarded-For."""
    return Principal(remote_ip=matchers.address_range(value))


def _token(value: str) -> Principal:
    """Match the issuer and subject of a token. `value` is ISSUER/SUBJECT; an issuer may contain slashes, a subject may
    not."""
    issuer, slash, subject = value.rpartition("/")
    anything = matchers.regex(".+")
    exact = StringMatcher
    if value == "*":
        wanted = (anything, anything)
    elif value.startswith("*"):
        wanted = (_starred(issuer), exact(exact=subject)) if slash else (anything, exact(suffix=value[1:]))
    elif value.endswith("*"):
        wanted = (exact(exact=issuer), _starred(subject)) if slash else (exact(prefix=value[:-1]), anything)
    else:
        wanted = (exact(exact=issuer), exact(exact=subject)) if slash else (exact(exact=value), exact(exact=""))
    return _every_id(
        [
            Principal(metadata=matchers.claim((name,), ValueMatcher(string_match=each)))
            for name, each in zip(("iss", "sub"), wanted, strict=True)
        ]
    )


def _starred(value: str) -> StringMatcher:
    return matchers.text(value)


def _every(parts: list[Permission]) -> Permission:
    if len(parts) <= 1:
        return parts[0] if parts else Permission(any=True)
    return Permission(and_rules=Permission.Set(rules=parts))


def _any(parts: list[Permission]) -> Permission:
    return parts[0] if len(parts) == 1 else Permission(or_rules=Permission.Set(rules=parts))


def _not(part: Permission) -> Permission:
    return Permission(not_rule=part)


def _every_id(parts: list[Principal]) -> Principal:
    if len(parts) <= 1:
        return parts[0] if parts else Principal(any=True)
    return Principal(and_ids=Principal.Set(ids=parts))


def _any_id(parts: list[Principal]) -> Principal:
    return parts[0] if len(parts) == 1 else Principal(or_ids=Principal.Set(ids=parts))


def _not_id(part: Principal) -> Principal:
    return Principal(not_id=part)
