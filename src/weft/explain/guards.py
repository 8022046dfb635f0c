"""Evaluates the network filters before the terminal filter of a chain, at a workload or a gateway: RBAC policies and
external authorizers for the connection. Input: a filter chain. Output: its terminal filter, or the verdict that
stops the connection."""

from __future__ import annotations

from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.extensions.filters.network.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.explain import matchers, rbac
from weft.explain.decision import DecisionStage, Kind, Unsure, Verdict
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources


def pass_guards(
    walk: Walk, resources: EnvoyResources, chain: FilterChain, seen: GuardInput
) -> Verdict | HttpConnectionManager | TcpProxy:
    for each in chain.filters:
        if (rules := resources.opened(each.typed_config, RBAC)) is not None:
            if why := rbac.denied(walk, rules, seen):
                return walk.end(Kind.CLOSED, "a policy denies the connection", detail=why)
        elif (ext_authz := resources.opened(each.typed_config, ExtAuthz)) is not None:
            if matchers.metadata(ext_authz.filter_enabled_metadata, seen.metadata):
                authorizer = ext_authz.grpc_service.envoy_grpc.cluster_name
                walk.tell(DecisionStage.POLICY, f"calls the external authorizer {authorizer} for the connection")
                raise Unsure(f"the external authorizer {authorizer} decides")
        elif (manager := resources.opened(each.typed_config, HttpConnectionManager)) is not None:
            return manager
        elif (proxy := resources.opened(each.typed_config, TcpProxy)) is not None:
            return proxy
    raise Unsure(f"the filter chain {chain.name} has no terminal filter")
