"""What a DestinationRule says at one of its levels and nobody acts on: settings of HTTP where no port that the level
reaches carries it, and a number of retries where a budget decides.

Rule: one rule for a host with HTTP ports and others is as it should be. Only a level that reaches no HTTP is told."""

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
    protocols: frozenset[Protocol]  # of the ports that it reaches
    spoken: frozenset[Protocol]  # what Sidecars let callers speak to these instead
    budget: RetryBudget | None  # that holds here

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
        budget = policy.retry_budget or widest  # which a port's entry cannot say, and does not silence
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
    asked = any(protocol.is_http for protocol in level.spoken)
    if level.bytes_alone and not asked and hashing is not None and hashing.key is not HashKey.SOURCE_IP:
        what = f"connections to {rule.host} are balanced by a {hashing.key}, which only HTTP has: they go anywhere"
        yield finding("WFT0213", rule.origin, f"{level.field}.loadBalancer", what, "use `useSourceIp`", line=level.line)


def _of_pool(rule: DestinationRule, level: _Level, pool: ConnectionPool) -> Iterator[Problem]:
    field = f"{level.field}.connectionPool.http"
    useless = [name for name, written in _of_requests(pool) if written]
    if level.bytes_alone and useless:
        listed = ", ".join(f"`{name}`" for name in useless)
        effect = "has no effect" if len(useless) == 1 else "have no effect"
        what = f"no port of {rule.host} that this is for carries HTTP, only {level.carried}: {listed} {effect}"
        hint = "settings of connections are `connectionPool.tcp`; does the port's name say what it carries?"
        yield finding("WFT0222", rule.origin, field, what, hint, line=level.line)
    if pool.max_retries and level.budget is not None:
        what = f"retries are limited by the `retryBudget` of {level.budget.percent:g} %: `maxRetries` has no effect"
        yield finding("WFT0223", rule.origin, f"{field}.maxRetries", what, "keep one of the two", line=level.line)


def _of_requests(pool: ConnectionPool) -> tuple[tuple[str, object], ...]:
    """What is written in clusters for HTTP alone. Numbers of requests and retries are limits of any cluster."""
    return (
        ("idleTimeout", pool.idle_timeout),
        ("maxRequestsPerConnection", pool.max_requests_per_connection),
        ("maxConcurrentStreams", pool.max_concurrent_streams),
        ("h2UpgradePolicy", pool.h2_upgrade),
        ("useClientProtocol", pool.use_client_protocol),
    )
