import pytest
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.extensions.filters.network.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from google.protobuf.json_format import ParseDict

from explain.test_rbac import ANY, NOBODY
from explain.test_rule import seen
from weft.explain.decision import Kind, Unsure, Verdict
from weft.explain.guards import pass_guards
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources

BYTES, HTTP = TcpProxy(cluster="web"), HttpConnectionManager(stat_prefix="web")
DENYING = ParseDict({"rules": {"action": "DENY", "policies": {"ns[shop]-policy[p]-rule[0]": ANY}}}, RBAC())
ALLOWING = ParseDict({"rules": {"policies": {"ns[shop]-policy[p]-rule[0]": ANY}}}, RBAC())
NOBODYS = ParseDict({"rules": {"policies": {"ns[shop]-policy[p]-rule[0]": NOBODY}}}, RBAC())


def met(*filters):
    chain = FilterChain(name="inbound")
    for each in filters:
        chain.filters.add().typed_config.Pack(each)
    return pass_guards(Walk(), EnvoyResources(), chain, seen())


@pytest.mark.parametrize("end", [BYTES, HTTP])
def test_an_allowed_connection_reaches_the_terminal_filter(end):
    assert met(ALLOWING, end) == end
    assert met(end, DENYING) == end  # a filter behind the terminal filter is never evaluated


@pytest.mark.parametrize("guard", [DENYING, NOBODYS])
def test_a_deny_policy_closes_the_connection(guard):
    found = met(ALLOWING, guard, BYTES)
    assert isinstance(found, Verdict)
    assert (found.kind, found.why) == (Kind.CLOSED, "a policy denies the connection")
    assert found.detail.startswith("rbac_access_denied_matched_policy[")


def test_a_call_to_an_external_authorizer_is_unknown():
    asked = ExtAuthz()
    asked.grpc_service.envoy_grpc.cluster_name = "keeper"
    asked.filter_enabled_metadata.filter = "envoy.filters.network.rbac"
    asked.filter_enabled_metadata.path.add(key="keeper")
    asked.filter_enabled_metadata.value.string_match.prefix = "istio-ext-authz"
    assert met(asked, BYTES) == BYTES
    chain = FilterChain()
    chain.filters.add().typed_config.Pack(asked)
    noted = seen()
    noted.metadata["envoy.filters.network.rbac"] = {"keeper": "istio-ext-authz-keeper"}
    with pytest.raises(Unsure, match="the external authorizer keeper decides"):
        pass_guards(Walk(), EnvoyResources(), chain, noted)


def test_a_chain_without_a_terminal_filter_is_unknown():
    with pytest.raises(Unsure, match="the filter chain inbound has no terminal filter"):
        met(ALLOWING)
