"""Where inbound connections arrive: `virtualInbound`, one filter chain per port that services or the workload itself
name, and a way through for all other ports. A declared port is never looked into before it is passed on."""

from __future__ import annotations

from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import FilterChain, ListenerFilterChainMatchPredicate
from envoy.config.listener.v3.listener_pb2 import Listener

from weft.model.mesh import InboundPort
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.translate import names, policy
from weft.translate.access_log import listener_logs
from weft.translate.built import Built, build
from weft.translate.chains import (
    DETECTED_HTTP,
    bytes_to,
    chain,
    http_inspector,
    http_to_workload,
    original_destination,
)
from weft.translate.guards import Guards, guards_of
from weft.translate.listeners import on_both_families, wait_for_first_bytes
from weft.translate.provenance import keys, of_objects
from weft.translate.view import GroupView


def virtual_inbound(view: GroupView) -> Built:
    ports, settings = view.inbound, view.inbound_settings
    guards = guards_of(view)
    name = names.VIRTUAL_INBOUND
    result = Listener(name=name, traffic_direction=TrafficDirection.INBOUND)
    result.access_log.extend(listener_logs(settings))
    on_both_families(result, names.INBOUND_PORT)
    loop = chain(f"{name}-blackhole", bytes_to(((names.BLACK_HOLE, 1),), settings))
    loop.filter_chain_match.destination_port.value = names.INBOUND_PORT
    result.filter_chains.append(loop)
    for port in ports:
        if port.number not in (names.INBOUND_PORT, names.OUTBOUND_PORT):
            result.filter_chains.extend(_chains(port, settings, guards))
    unnamed = chain(
        f"{name}-catchall-http",
        http_to_workload(names.INBOUND_PASSTHROUGH, names.INBOUND_PASSTHROUGH, "inbound|http|0", settings, guards.http),
    )
    unnamed.filter_chain_match.application_protocols.extend(DETECTED_HTTP)
    result.filter_chains.append(unnamed)
    result.default_filter_chain.CopyFrom(
        chain(name, *guards.network, bytes_to(((names.INBOUND_PASSTHROUGH, 1),), settings))
    )
    inspector = http_inspector()
    declared = [port.number for port in ports if port.protocol is not Protocol.UNDECLARED]
    inspector.filter_disabled.CopyFrom(_on_ports([*declared, names.INBOUND_PORT]))
    result.listener_filters.extend([original_destination(), inspector])
    wait_for_first_bytes(result, settings)
    return build(name, result)


def _chains(port: InboundPort, settings: Settings, guards: Guards) -> list[FilterChain]:
    cluster = names.inbound_cluster(port.number)
    name = names.listener("0.0.0.0", port.number)
    chosen = policy.effective(port.rule, port.service_port)
    result: list[FilterChain] = []
    if port.protocol.is_http or port.protocol is Protocol.UNDECLARED:
        host_name = f"inbound|http|{port.service_port or port.number}"
        end = http_to_workload(f"inbound_{name}", cluster, host_name, settings, guards.http)
        http = chain(name, end)
        if port.protocol is Protocol.UNDECLARED:
            http.filter_chain_match.application_protocols.extend(DETECTED_HTTP)
        result.append(http)
    if not port.protocol.is_http:
        result.append(chain(name, *guards.network, bytes_to(((cluster, 1),), settings, chosen.connection_pool)))
    sources = keys(*(service.origin for service in port.services))
    for entry in result:
        entry.filter_chain_match.destination_port.value = port.number
        entry.metadata.CopyFrom(of_objects(sources))
    return result


def _on_ports(numbers: list[int]) -> ListenerFilterChainMatchPredicate:
    rules = [ListenerFilterChainMatchPredicate() for _ in numbers]
    for rule, number in zip(rules, numbers, strict=True):
        rule.destination_port_range.start, rule.destination_port_range.end = number, number + 1
    if len(rules) == 1:
        return rules[0]
    result = ListenerFilterChainMatchPredicate()
    result.or_match.rules.extend(rules)
    return result
