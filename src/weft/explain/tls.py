"""Decides about TLS between two proxies: whether a caller's proxy uses TLS to an endpoint, with which ALPN and SNI,
and whether each side accepts the other's certificate."""

from __future__ import annotations

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.extensions.transport_sockets.proxy_protocol.v3.upstream_proxy_protocol_pb2 import (
    ProxyProtocolUpstreamTransport,
)
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import CertificateValidationContext, SubjectAltNameMatcher
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext

from weft.explain import matchers
from weft.explain.decision import DecisionStage, ObjectSource, sources_of
from weft.explain.endpoint import EndpointShare
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources


class Offer(msgspec.Struct, frozen=True):
    """The TLS parameters with which a caller's proxy opens a connection. `server_name` and `offers`: SNI and ALPN.
    `identity`: the SPIFFE ID of the client certificate; "" if the proxy presents none. `names`: the server's
    certificate must match one of them; empty if any name is accepted. `foreign`: whether this is TLS to a server
    outside the mesh, for which the trusted CAs do not come from the node's agent. `sources`: the objects that
    configure this TLS."""

    server_name: str
    offers: tuple[str, ...]
    identity: str
    names: tuple[SubjectAltNameMatcher, ...]
    foreign: bool
    sources: tuple[ObjectSource, ...] = ()


def offer(
    walk: Walk,
    resources: EnvoyResources,
    cluster: Cluster,
    place: EndpointShare,
    instead: tuple[str, ...],
    identity: str,
) -> Offer | None:
    """Returns the TLS parameters of the caller's proxy for an endpoint of the cluster; None for plaintext.
    `instead`: ALPN that the filter chain sets, in place of the cluster's. `identity`: the SPIFFE ID of the
    caller's proxy."""
    socket, why = _socket(cluster, place)
    sources = sources_of(cluster.metadata)
    if (header := _header(resources, socket)) is not None:
        walk.tell(DecisionStage.TLS, "a PROXY header with the caller's address is sent first", sources)
        socket = header.transport_socket
    context = resources.opened(socket.typed_config, UpstreamTlsContext) if socket else None
    if context is None:
        walk.tell(DecisionStage.TLS, f"in plaintext: {why}", sources)
        return None
    common = context.common_tls_context
    names = validation(common).match_typed_subject_alt_names
    offers = instead or tuple(common.alpn_protocols)
    shown = identity if common.tls_certificate_sds_secret_configs else ""
    foreign = (
        common.combined_validation_context.validation_context_sds_secret_config.sds_config.WhichOneof(
            "config_source_specifier"
        )
        != "api_config_source"
    )
    what = f"with TLS ({why}), ALPN {', '.join(offers) or 'none'}"
    walk.tell(DecisionStage.TLS, f"{what}, SNI {context.sni}" if context.sni else what, sources)
    return Offer(context.sni, offers, shown, tuple(names), foreign, sources)


def announces(resources: EnvoyResources, cluster: Cluster, place: EndpointShare) -> bool:
    """Whether the caller's proxy sends a PROXY protocol header to the endpoint `place` of the cluster. Proxies of
    the mesh do not read such a header."""
    return _header(resources, _socket(cluster, place)[0]) is not None


def takes_server(walk: Walk, client_tls: Offer, identity: str) -> bool:
    """Whether the caller's proxy accepts a server whose certificate has this SPIFFE ID: yes if it is one of the
    names that `client_tls` expects, or if `client_tls` expects no particular name."""
    if not client_tls.names or any(matchers.text(each.matcher, identity) for each in client_tls.names):
        walk.tell(DecisionStage.TLS, f"the server is {identity}, as expected")
        return True
    expected = ", ".join(each.matcher.exact or str(each.matcher).strip() for each in client_tls.names)
    walk.tell(
        DecisionStage.TLS, f"the server is {identity or 'without an identity'}, not {expected}", client_tls.sources
    )
    return False


def takes_client(
    walk: Walk,
    context: DownstreamTlsContext,
    identity: str,
    sources: tuple[ObjectSource, ...] = (),
    policies: tuple[ObjectSource, ...] = (),
    unmet: str = "",
) -> bool:
    """Whether the server's proxy accepts a caller with the SPIFFE ID `identity` in its client certificate. `identity`:
    "" for a caller without a certificate. `sources`: the objects of the filter chain. `policies`: the ALLOW policies
    that the handshake enforces already. `unmet`: why none of these policies matches, as text. `context`: the TLS
    settings of the server's filter chain."""
    if not identity:
        if context.require_client_certificate.value:
            walk.tell(DecisionStage.TLS, "the caller presents no certificate, but one is required", sources)
        return not context.require_client_certificate.value
    names = validation(context.common_tls_context).match_typed_subject_alt_names
    if not names or any(matchers.text(each.matcher, identity) for each in names):
        walk.tell(DecisionStage.TLS, f"the caller is {identity}")
        return True
    # A prefix covers a whole trust domain, so these names do not come from a policy.
    of_mesh = any(each.matcher.HasField("prefix") for each in names)
    if policies and not of_mesh:
        what = f"the caller is {identity}, and no ALLOW rule matches, so the call is denied{unmet}"
        walk.tell(DecisionStage.POLICY, what, policies)
    else:
        walk.tell(DecisionStage.TLS, f"the caller is {identity}, which is not accepted here")
    return False


def validation(common: CommonTlsContext) -> CertificateValidationContext:
    if common.HasField("combined_validation_context"):
        return common.combined_validation_context.default_validation_context
    return common.validation_context


def _header(resources: EnvoyResources, socket: TransportSocket | None) -> ProxyProtocolUpstreamTransport | None:
    return resources.opened(socket.typed_config, ProxyProtocolUpstreamTransport) if socket else None


def _socket(cluster: Cluster, place: EndpointShare) -> tuple[TransportSocket | None, str]:
    marks = dict(place.marks)
    for match in cluster.transport_socket_matches:
        wanted = {name: value.string_value for name, value in match.match.fields.items()}
        if wanted.items() <= marks.items():
            marked = ", ".join(f"{name}: {value}" for name, value in sorted(wanted.items()))
            return (
                match.transport_socket,
                f"the endpoint is marked {marked}" if marked else "the endpoint is not marked for TLS",
            )
    if cluster.HasField("transport_socket"):
        return cluster.transport_socket, "the cluster always uses it"
    return None, "TLS is not configured"
