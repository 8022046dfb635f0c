"""Builds Envoy's ext_authz filters: external authorization of requests or connections. An RBAC filter before the
ext_authz filter marks in the metadata which requests the authorizer must decide; the authorizer is not called for
any others."""

from __future__ import annotations

from envoy.config.core.v3.base_pb2 import HeaderValue
from envoy.config.core.v3.config_source_pb2 import ApiVersion
from envoy.config.core.v3.grpc_service_pb2 import GrpcService
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.extensions.filters.http.ext_authz.v3.ext_authz_pb2 import ExtAuthz, HttpService
from envoy.extensions.filters.network.ext_authz.v3.ext_authz_pb2 import ExtAuthz as NetworkExtAuthz
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.string_pb2 import ListStringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher

from weft.model.extension_provider import Authorizer
from weft.translate import names
from weft.translate import rbac_matchers as matchers
from weft.translate.protos import duration, packed

HTTP_FILTER = "envoy.filters.http.ext_authz"
NETWORK_FILTER = "envoy.filters.network.ext_authz"


def ask_about_requests(provider: Authorizer, noted_by: str, note: str) -> HttpFilter:
    config = ExtAuthz(
        transport_api_version=ApiVersion.V3,
        failure_mode_allow=provider.fail_open,
        clear_route_cache=provider.clear_route_cache,
        filter_enabled_metadata=_where_noted(noted_by, note),
    )
    if provider.status_on_error:
        config.status_on_error.code = provider.status_on_error
    if provider.body is not None:
        config.with_request_body.max_request_bytes = provider.body.most_bytes
        config.with_request_body.allow_partial_message = provider.body.allow_partial
        config.with_request_body.pack_as_bytes = provider.body.as_bytes
    if provider.grpc:
        config.grpc_service.CopyFrom(_grpc(provider))
    else:
        config.http_service.CopyFrom(_http(provider))
        if provider.request_headers:
            config.allowed_headers.CopyFrom(_listed(provider.request_headers))
    return HttpFilter(name=HTTP_FILTER, typed_config=packed(config))


def ask_about_connections(provider: Authorizer, noted_by: str, note: str) -> Filter:
    config = NetworkExtAuthz(
        stat_prefix="tcp.",
        transport_api_version=ApiVersion.V3,
        failure_mode_allow=provider.fail_open,
        grpc_service=_grpc(provider),
        filter_enabled_metadata=_where_noted(noted_by, note),
    )
    return Filter(name=NETWORK_FILTER, typed_config=packed(config))


def _where_noted(noted_by: str, note: str) -> MetadataMatcher:
    return matchers.metadata(noted_by, (note,), ValueMatcher(present_match=True))


def _grpc(provider: Authorizer) -> GrpcService:
    result = GrpcService(timeout=duration(provider.timeout))
    result.envoy_grpc.cluster_name = names.outbound_cluster(provider.host, provider.port)
    result.envoy_grpc.authority = provider.host  # the default, the cluster's name, is no valid authority
    return result


def _http(provider: Authorizer) -> HttpService:
    service = HttpService(path_prefix=provider.path_prefix)
    service.server_uri.uri = f"http://{provider.host}"
    service.server_uri.cluster = names.outbound_cluster(provider.host, provider.port)
    service.server_uri.timeout.CopyFrom(duration(provider.timeout))
    if provider.additional_headers:
        added = [HeaderValue(key=name, value=value) for name, value in provider.additional_headers]
        service.authorization_request.headers_to_add.extend(added)
    answer = service.authorization_response
    if provider.upstream_headers_on_allow:
        answer.allowed_upstream_headers.CopyFrom(_listed(provider.upstream_headers_on_allow))
    if provider.downstream_headers_on_allow:
        answer.allowed_client_headers_on_success.CopyFrom(_listed(provider.downstream_headers_on_allow))
    if provider.downstream_headers_on_deny:
        answer.allowed_client_headers.CopyFrom(_listed(provider.downstream_headers_on_deny))
    return service


def _listed(headers: tuple[str, ...]) -> ListStringMatcher:
    result = ListStringMatcher()
    for header in headers:
        pattern = result.patterns.add()
        pattern.CopyFrom(matchers.text(header))
        if header != "*":  # then it is a regular expression
            pattern.ignore_case = True
    return result
