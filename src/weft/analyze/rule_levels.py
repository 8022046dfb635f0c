"""Findings about settings at one level of a DestinationRule (the host, a subset, or a port of either) that have no
effect: HTTP settings and hashes at a level that applies to no HTTP port, and `maxRetries` beside a retry budget.

Rule: a level that applies to HTTP ports and to other ports is not reported, only a level without any HTTP port.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.model.destination_rule import ConnectionPool, DestinationRule, HashKey, RetryBudget, TrafficPolicy
from weft.model.service import Protocol, Service


class _Level(msgspec.Struct, frozen=True):
    field: str
    line: int
    policy: TrafficPolicy
    protocols: frozenset[Protocol]  # of the ports that the level applies to
    spoken: frozenset[Protocol]  # of Sidecar egress listeners, which override `protocols`
    budget: RetryBudget | None  # the retry budget in effect at this level

    @property
    def bytes_alone(self) -> bool:
        return bool(self.protocols) and all(protocol.is_tcp for protocol in self.protocols)

    @property
    def carried(self) -> str:
        return ", ".join(sorted(self.protocols))


def of_rule_levels(facts: Facts) -> Iterator[Problem]:
    for rule in facts.rules:
        services = facts.services_of(rule.host) if not rule.host.startswith("*") else ()
        for level in _levels(rule, services, facts):
            yield from _of_hashing(rule, level)
            if level.policy.connection_pool is not None:
                yield from _of_pool(rule, level, level.policy.connection_pool)


def _levels(rule: DestinationRule, services: tuple[Service, ...], facts: Facts) -> Iterator[_Level]:
    ports = [(port.number, port.protocol) for service in services for port in service.ports]
    ports = [(number, protocol) for number, protocol in ports if protocol is not Protocol.UDP]
    widest = rule.policy.retry_budget if rule.policy is not None else None
    placed = [("spec.trafficPolicy", 0, rule.policy)]
    placed += [(f"spec.subsets[{at}].trafficPolicy", each.line, each.policy) for at, each in enumerate(rule.subsets)]
    for field, line, policy in placed:
        if policy is None:
            continue
        budget = policy.retry_budget or widest  # portLevelSettings cannot have a retry budget, and inherit it
        own = {number for number, _ in policy.ports}
        reached = [(field, policy, {number for number, _ in ports} - own)]
        for index, (number, entry) in enumerate(policy.ports):
            reached.append((f"{field}.portLevelSettings[{index}]", entry, {number}))
        for place, level, numbers in reached:
            carried = frozenset(protocol for number, protocol in ports if number in numbers)
            spoken = frozenset(protocol for number in numbers for protocol in facts.spoken.get(number, ()))
            yield _Level(place, line, level, carried, spoken, budget)


def _of_hashing(rule: DestinationRule, level: _Level) -> Iterator[Problem]:
    balancer = level.policy.load_balancer
    hashing = balancer.consistent_hash if balancer is not None else None
    overridden = any(protocol.is_http for protocol in level.spoken)
    if level.bytes_alone and not overridden and hashing is not None and hashing.key is not HashKey.SOURCE_IP:
        what = f"connections to {rule.host} are hashed by a {hashing.key}, which only HTTP has: the hash has no effect"
        yield finding("WFT0213", rule.origin, f"{level.field}.loadBalancer", what, "use `useSourceIp`", line=level.line)


def _of_pool(rule: DestinationRule, level: _Level, pool: ConnectionPool) -> Iterator[Problem]:
    field = f"{level.field}.connectionPool.http"
    useless = [name for name, value in _of_requests(pool) if value]
    if level.bytes_alone and useless:
        listed = ", ".join(f"`{name}`" for name in useless)
        effect = "has no effect" if len(useless) == 1 else "have no effect"
        what = (
            f"no port of {rule.host} that these settings apply to carries HTTP, only {level.carried}: {listed} {effect}"
        )
        hint = "use `connectionPool.tcp` for connections; if the port carries HTTP, begin its name with http"
        yield finding("WFT0222", rule.origin, field, what, hint, line=level.line)
    if pool.max_retries and level.budget is not None:
        what = f"the `retryBudget` of {level.budget.percent:g} % limits retries: `maxRetries` has no effect"
        yield finding(
            "WFT0223",
            rule.origin,
            f"{field}.maxRetries",
            what,
            "keep either `retryBudget` or `maxRetries`",
            line=level.line,
        )


def _of_requests(pool: ConnectionPool) -> tuple[tuple[str, object], ...]:
    """The settings of a connection pool that have an effect only on HTTP ports, each with its name. Limits of
    requests and retries are left out, because they apply to every cluster."""
    return (
        ("idleTimeout", pool.idle_timeout),
        ("maxRequestsPerConnection", pool.max_requests_per_connection),
        ("maxConcurrentStreams", pool.max_concurrent_streams),
        ("h2UpgradePolicy", pool.h2_upgrade),
        ("useClientProtocol", pool.use_client_protocol),
    )
