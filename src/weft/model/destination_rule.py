"""DestinationRule: load balancing, connection pools, outlier detection and TLS for calls to a host, and its subsets.
An absent field is None, so that a subset's policy can override field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum

import msgspec

from weft.model.names import CredentialRef, Labels, Origin


class SimpleBalancer(StrEnum):
    ROUND_ROBIN = "ROUND_ROBIN"
    LEAST_REQUEST = "LEAST_REQUEST"
    RANDOM = "RANDOM"
    PASSTHROUGH = "PASSTHROUGH"


class HashKey(StrEnum):
    HEADER = "header"
    COOKIE = "cookie"
    SOURCE_IP = "source-ip"
    QUERY = "query"


class ConsistentHash(msgspec.Struct, frozen=True):
    key: HashKey
    name: str = ""
    cookie_path: str = ""
    cookie_ttl: timedelta | None = None
    cookie_attributes: tuple[tuple[str, str], ...] = ()
    maglev: bool = False
    table_size: int = 0
    minimum_ring_size: int = 0


class Warmup(msgspec.Struct, frozen=True):
    """How a new endpoint's share of traffic grows (Envoy's slow start). `duration`: the time after which the endpoint
    gets its full share. `minimum_percent`: the share that it begins with. `aggression`: how fast the share grows. None
    stands for Envoy's default."""

    duration: timedelta
    minimum_percent: float | None = None
    aggression: float | None = None


class Distribution(msgspec.Struct, frozen=True):
    """How calls from one locality are distributed over localities. `origin`: the callers' locality (`from`) as
    region/zone/subzone, `*` for all. `to`: pairs of a locality and its share of the calls, in per cent."""

    origin: str
    to: tuple[tuple[str, int], ...]


class LocalitySetting(msgspec.Struct, frozen=True):
    """Istio's localityLbSetting; `model/locality.py` applies it. `enabled`: whether localities matter at all.
    `distribute`: the shares of each locality, by the caller's locality. `failover`: pairs of a region and the region to
    which its calls fail over. `failover_priority`: labels that are compared between the caller and an endpoint, the
    most important first, each as LABEL, or as LABEL=VALUE, where VALUE is compared instead of the caller's own value.
    `always`: whether the setting applies even without outlier detection, so that only readiness decides when calls move
    elsewhere."""

    enabled: bool = True
    distribute: tuple[Distribution, ...] = ()
    failover: tuple[tuple[str, str], ...] = ()
    failover_priority: tuple[str, ...] = ()
    always: bool = False


class LoadBalancer(msgspec.Struct, frozen=True):
    simple: SimpleBalancer | None = None
    consistent_hash: ConsistentHash | None = None
    warmup: Warmup | None = None
    locality: LocalitySetting | None = None


class Keepalive(msgspec.Struct, frozen=True):
    probes: int = 0
    time: timedelta | None = None
    interval: timedelta | None = None


class ConnectionPool(msgspec.Struct, frozen=True):
    max_connections: int | None = None
    connect_timeout: timedelta | None = None
    keepalive: Keepalive | None = None
    max_connection_duration: timedelta | None = None
    tcp_idle_timeout: timedelta | None = None
    max_pending_requests: int | None = None  # http1MaxPendingRequests
    max_requests: int | None = None  # http2MaxRequests
    max_requests_per_connection: int | None = None
    max_retries: int | None = None
    idle_timeout: timedelta | None = None
    h2_upgrade: str = ""  # DEFAULT, UPGRADE or DO_NOT_UPGRADE; "" is not set
    use_client_protocol: bool = False
    max_concurrent_streams: int | None = None


class RetryBudget(msgspec.Struct, frozen=True):
    """How many of the active requests may be retries: `percent` of all active requests, but always at least `minimum`
    requests."""

    percent: float = 20.0
    minimum: int = 3


class ProxyProtocol(StrEnum):
    """The version of the PROXY protocol header, which carries the client's address."""

    V1 = "V1"
    V2 = "V2"


class Tunnel(msgspec.Struct, frozen=True):
    """An HTTP tunnel: connections are sent to `host` and `port` in an HTTP CONNECT request, or in a POST request if
    `by_post` is set."""

    host: str
    port: int
    by_post: bool = False  # POST instead of CONNECT


class OutlierDetection(msgspec.Struct, frozen=True):
    consecutive_5xx: int | None = None
    consecutive_gateway_errors: int | None = None
    consecutive_local_origin_failures: int | None = None
    split_local_origin: bool = False
    interval: timedelta | None = None
    base_ejection_time: timedelta | None = None
    max_ejection_percent: int | None = None
    min_health_percent: int | None = None


class ClientTlsMode(StrEnum):
    DISABLE = "DISABLE"
    SIMPLE = "SIMPLE"
    MUTUAL = "MUTUAL"
    ISTIO_MUTUAL = "ISTIO_MUTUAL"
    CLOSED = "CLOSED"  # for a rejected rule: its intended TLS is unknown, so calls to the host fail


class ClientTls(msgspec.Struct, frozen=True):
    """The TLS settings of connections to a host. `server_name`: the `sni`. `subject_alt_names`: the names of which the
    server's certificate must have one; () for the default: those of the service, or the server name. `certificate`,
    `private_key`, `authorities` (caCertificates; "" for the system's CA certificates) and `revoked` (caCrl) are paths
    in the proxy's file system. `verify`: false for insecureSkipVerify. `roots`: CA certificates inline, as PEM.
    `credential`: the name of a Secret in the proxy's namespace that replaces all of these files. `of_gateway`: gateways
    also present the client certificate of their Gateway, if that has one. `pair`: the Secret with this certificate and
    its key."""

    mode: ClientTlsMode = ClientTlsMode.DISABLE
    server_name: str = ""
    subject_alt_names: tuple[str, ...] = ()
    certificate: str = ""
    private_key: str = ""
    authorities: str = ""
    revoked: str = ""
    verify: bool = True
    roots: str = ""
    credential: str = ""
    of_gateway: bool = False
    pair: CredentialRef | None = None


class TrafficPolicy(msgspec.Struct, frozen=True):
    load_balancer: LoadBalancer | None = None
    connection_pool: ConnectionPool | None = None
    outlier_detection: OutlierDetection | None = None
    tls: ClientTls | None = None
    retry_budget: RetryBudget | None = None
    proxy_protocol: ProxyProtocol | None = None
    tunnel: Tunnel | None = None
    # A port's entry (portLevelSettings) replaces everything of this level except the fields that an entry cannot have:
    # `WHOLE_LEVEL`.
    ports: tuple[tuple[int, TrafficPolicy], ...] = ()
    line: int = 0  # where it is written


class Subset(msgspec.Struct, frozen=True):
    name: str
    labels: Labels = ()
    policy: TrafficPolicy | None = None
    line: int = 0
    origin: Origin | None = None  # the rule it was merged from; None: the rule that contains it


class DestinationRule(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    host: str
    policy: TrafficPolicy | None = None
    subsets: tuple[Subset, ...] = ()
    workload_selector: Labels = ()
    export_to: tuple[str, ...] = ()
    created: str = ""
    origin: Origin | None = None
    others: tuple[Origin, ...] = ()  # the rules that were merged into this one
    policy_origin: Origin | None = None  # the merged rule that has the traffic policy; None: this one
    attached: bool = False  # derived from a BackendTLSPolicy: applies where no DestinationRule sets TLS

    @property
    def origins(self) -> tuple[Origin, ...]:
        return (*((self.origin,) if self.origin else ()), *self.others)

    def origin_of(self, subset: Subset | None = None) -> Origin | None:
        """The origin of the rule from which `subset` comes; without `subset`, the origin of the rule from which the
        host's traffic policy comes. Several rules may be merged into this one, so the origin may be that of
        another rule; None if unknown."""
        return (subset.origin if subset is not None else self.policy_origin) or self.origin


def merged(rules: Sequence[DestinationRule]) -> DestinationRule:
    """Merge rules of one namespace for the same host and callers. The result has the traffic policy of the first
    rule that has one, and the subsets of all rules; among subsets with the same name, the first is used."""
    first, *later = rules
    if not later:
        return first
    subsets: dict[str, Subset] = {}
    for rule in rules:
        for subset in rule.subsets:
            written = subset if rule is first else msgspec.structs.replace(subset, origin=rule.origin)
            subsets.setdefault(subset.name, written)
    deciding = next((rule for rule in rules if rule.policy is not None), first)
    return msgspec.structs.replace(
        first,
        policy=deciding.policy,
        policy_origin=deciding.origin if deciding is not first else None,
        subsets=tuple(subsets.values()),
        others=tuple(rule.origin for rule in later if rule.origin is not None),
    )


def completed(rule: DestinationRule, attached: DestinationRule) -> DestinationRule:
    """The DestinationRule with the TLS of a BackendTLSPolicy (`attached`) wherever the rule sets none, so that a
    rule about other fields does not switch the host back to plaintext."""
    policy, under = rule.policy or attached.policy, attached.policy
    subsets = rule.subsets
    if under is not None:
        policy = _with_tls_under(rule.policy, under) if rule.policy is not None else policy
        subsets = tuple(
            msgspec.structs.replace(each, policy=_with_tls_at_ports(each.policy, under)) if each.policy else each
            for each in subsets
        )
    return msgspec.structs.replace(
        rule,
        policy=policy,
        policy_origin=rule.policy_origin if rule.policy is not None else attached.origin,
        subsets=subsets,
        others=(*rule.others, *((attached.origin,) if attached.origin is not None else ())),
    )


def _with_tls_under(policy: TrafficPolicy, under: TrafficPolicy) -> TrafficPolicy:
    """The host's policy, with the TLS of `under` (a BackendTLSPolicy) added at each level where the policy sets no
    TLS: for the host as a whole, and for each port."""
    alone = msgspec.structs.replace(policy, ports=())
    written = dict(policy.ports)
    missing = tuple(
        (number, alone if alone.tls is not None else msgspec.structs.replace(alone, tls=entry.tls))
        for number, entry in under.ports
        if number not in written
    )
    filled = _with_tls_at_ports(policy, under)
    return msgspec.structs.replace(
        filled,
        tls=policy.tls if policy.tls is not None else under.tls,
        ports=tuple(sorted((*filled.ports, *missing), key=lambda pair: pair[0])),
    )


def _with_tls_at_ports(policy: TrafficPolicy, under: TrafficPolicy) -> TrafficPolicy:
    """The policy, with the TLS of `under` (a BackendTLSPolicy) added to port entries without TLS. Normally a port
    entry replaces the TLS of its own rule even if the entry sets no TLS, but it must not remove the TLS of a
    BackendTLSPolicy in this way."""
    ports = []
    for number, entry in policy.ports:
        theirs = _at_port(under, number) or under
        ports.append((number, entry if entry.tls is not None else msgspec.structs.replace(entry, tls=theirs.tls)))
    return msgspec.structs.replace(policy, ports=tuple(ports))


def levels(rule: DestinationRule | None) -> Iterator[TrafficPolicy]:
    """Every traffic policy of a rule: the host's, the subsets' and their port entries."""
    for level in (rule.policy, *(subset.policy for subset in rule.subsets)) if rule else ():
        if level is not None:
            yield level
            yield from (entry for _, entry in level.ports)


def with_tls(rule: DestinationRule, change: Callable[[ClientTls], ClientTls]) -> DestinationRule:
    """The rule with `change` applied to its TLS settings at every level."""

    def changed(policy: TrafficPolicy | None) -> TrafficPolicy | None:
        if policy is None:
            return None
        return msgspec.structs.replace(
            policy,
            tls=change(policy.tls) if policy.tls is not None else None,
            ports=tuple((number, changed(entry) or entry) for number, entry in policy.ports),
        )

    subsets = tuple(msgspec.structs.replace(each, policy=changed(each.policy)) for each in rule.subsets)
    return msgspec.structs.replace(rule, policy=changed(rule.policy), subsets=subsets)


def credentials_of(rule: DestinationRule | None) -> frozenset[str]:
    """The Secrets that a rule names."""
    return frozenset(level.tls.credential for level in levels(rule) if level.tls is not None and level.tls.credential)


def passes_on(rule: DestinationRule | None) -> bool:
    """Whether a level of the rule has the load balancer PASSTHROUGH, which sends calls to their original destination
    address."""
    balancers = (level.load_balancer for level in levels(rule))
    return any(balancer is not None and balancer.simple is SimpleBalancer.PASSTHROUGH for balancer in balancers)


def asks_for_tls(policy: TrafficPolicy) -> bool:
    return policy.tls is not None and policy.tls.mode is not ClientTlsMode.DISABLE


def effective(rule: DestinationRule | None, port: int, subset: Subset | None = None) -> TrafficPolicy:
    """The traffic policy for a port of a host, or of one of its subsets. A subset's policy overrides the host's
    field by field. A port entry overrides all wider policies, even in fields that it does not set, except in the
    fields that a port entry cannot have (`WHOLE_LEVEL`)."""
    policy = _at_port(rule.policy if rule else None, port) or TrafficPolicy()
    if subset is None or subset.policy is None:
        return policy
    own = _at_port(subset.policy, port) or TrafficPolicy()
    at_port = any(number == port for number, _ in subset.policy.ports)
    wider = {field: getattr(policy, field) for field in (WHOLE_LEVEL if at_port else FIELDS)}
    inherited = {field: value for field, value in wider.items() if getattr(own, field) is None}
    return msgspec.structs.replace(own, ports=(), **inherited)


WHOLE_LEVEL = (
    "retry_budget",
    "proxy_protocol",
    "tunnel",
)  # portLevelSettings cannot have these fields, and so do not override them
FIELDS = ("load_balancer", "connection_pool", "outlier_detection", "tls", *WHOLE_LEVEL)


class PolicyLevel(StrEnum):
    """The levels at which a rule can set a field for a port of a host."""

    HOST = "trafficPolicy"
    HOST_PORT = "trafficPolicy.portLevelSettings"
    SUBSET = "subsets[].trafficPolicy"
    SUBSET_PORT = "subsets[].trafficPolicy.portLevelSettings"


class Decided(msgspec.Struct, frozen=True):
    """Which level of a rule decides one field. `level`: the deciding level; None if the field is not set at any level
    that applies. `passed`: a wider level that also sets the field, but is overridden or does not apply; None if there
    is none."""

    level: PolicyLevel | None  # None: no effective level sets the field
    passed: PolicyLevel | None = None


def decided_at(rule: DestinationRule | None, port: int, field: str, subset: Subset | None = None) -> Decided:
    """Find the level of `rule` that decides `field`, which is a field of the policy that `effective` returns for the
    port and subset. `subset`: None for the host as a whole."""
    in_force: list[tuple[PolicyLevel, TrafficPolicy]] = []  # the narrowest first
    ignored: list[tuple[PolicyLevel, TrafficPolicy]] = []
    for written, everywhere, at_port in (
        (subset.policy if subset else None, PolicyLevel.SUBSET, PolicyLevel.SUBSET_PORT),
        (rule.policy if rule else None, PolicyLevel.HOST, PolicyLevel.HOST_PORT),
    ):
        if written is None:
            continue
        entry = next((entry for number, entry in written.ports if number == port), None)
        if field in WHOLE_LEVEL:
            entry = None
        closed = any(level is PolicyLevel.SUBSET_PORT for level, _ in in_force)
        (ignored if closed else in_force).append((everywhere, written) if entry is None else (at_port, entry))
        if entry is not None:
            ignored.append((everywhere, written))
    setting = [level for level, policy in in_force if getattr(policy, field) is not None]
    overridden = [*setting[1:], *(level for level, policy in ignored if getattr(policy, field) is not None)]
    return Decided(setting[0] if setting else None, overridden[0] if overridden else None)


def line_of(level: PolicyLevel, rule: DestinationRule, port: int, subset: Subset | None = None) -> int:
    """The line in the file where a level of a rule (for this port and subset) begins; 0 if unknown."""
    policy = (
        subset.policy if subset is not None and level in (PolicyLevel.SUBSET, PolicyLevel.SUBSET_PORT) else rule.policy
    )
    if policy is None:
        return 0
    written = dict(policy.ports).get(port) if level in (PolicyLevel.HOST_PORT, PolicyLevel.SUBSET_PORT) else policy
    return written.line if written is not None else 0


def _at_port(policy: TrafficPolicy | None, port: int) -> TrafficPolicy | None:
    if policy is None:
        return None
    entry = next((entry for number, entry in policy.ports if number == port), None)
    if entry is None:
        return policy
    return msgspec.structs.replace(entry, **{field: getattr(policy, field) for field in WHOLE_LEVEL})
