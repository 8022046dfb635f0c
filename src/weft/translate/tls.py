"""Builds TLS contexts for mutual TLS in the mesh, for the server and for the caller, and the ALPN names by which the
receiving proxy distinguishes connections of the mesh from those of an application.

The mesh's ALPN names are Istio's. A caller offers `istio-h2` or `istio-http/1.1` for HTTP and `istio` for anything
else. It also offers the actual protocol of the connection, so that whichever name is negotiated is correct.
"""

from __future__ import annotations

from functools import lru_cache

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.config.core.v3.config_source_pb2 import ApiConfigSource, ApiVersion, ConfigSource
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.extensions.filters.common.set_filter_state.v3.value_pb2 import FilterStateValue
from envoy.extensions.filters.network.set_filter_state.v3.set_filter_state_pb2 import Config as SetFilterState
from envoy.extensions.transport_sockets.raw_buffer.v3.raw_buffer_pb2 import RawBuffer
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import SubjectAltNameMatcher, TlsParameters
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext
from google.protobuf.duration_pb2 import Duration

from weft.api.syntax import is_address
from weft.model.identity import Identity
from weft.model.proxy import CERTIFICATE, ROOTS, SDS_CLUSTER
from weft.model.settings import Settings
from weft.translate.protos import packed

HTTP2 = ("istio-h2", "h2")
HTTP1 = ("istio-http/1.1", "http/1.1")
ANY_HTTP = ("istio-http/1.1",)  # the first bytes decide the HTTP version, so ALPN must not negotiate one
BYTES = ("istio",)

OF_HTTP1 = ("istio-http/1.0", "istio-http/1.1")
OF_HTTP = (*OF_HTTP1, "istio-h2")
OF_BYTES = ("istio-peer-exchange", "istio")
OF_THE_MESH = ("istio", "istio-peer-exchange", *OF_HTTP)

# Lifetime of TLS sessions. A resumed session relies on the certificate of the first handshake. In TLS 1.2 a full
# handshake is needed after this time; in TLS 1.3 at the latest when the server's own certificate is renewed, because
# its ticket keys change with it.
_SESSION = Duration(seconds=3600)

TLS = "envoy.transport_sockets.tls"
# The system's CA bundle, where Debian and most other distributions put it. If the file is missing, no CA is trusted.
SYSTEM_ROOTS = "/etc/ssl/certs/ca-certificates.crt"
_UPSTREAM = f"type.googleapis.com/{UpstreamTlsContext.DESCRIPTOR.full_name}"
_RAW = "envoy.transport_sockets.raw_buffer"
_MATCH = "tlsMode"
# No certificate has this identity. It stands for "no caller": without any name, Envoy would accept every certificate of
# the mesh.
NOBODY = "spiffe://nobody"
ENDPOINT_METADATA = "envoy.transport_socket_match"
ENDPOINT_MATCH = {_MATCH: "istio"}


@lru_cache(maxsize=1024)
def downstream(settings: Settings, callers: tuple[str, ...] | None = None) -> TransportSocket:
    """Return the server's socket for mutual TLS: every caller needs a certificate of this mesh's trust domain or of one
    of its former trust domains. `callers`: regular expressions for the accepted identities; None for all identities
    of the mesh."""
    context = DownstreamTlsContext(session_timeout=_SESSION)
    context.require_client_certificate.value = True
    context.common_tls_context.CopyFrom(_common(settings))
    context.common_tls_context.alpn_protocols.extend(["h2", "http/1.1"])
    names = context.common_tls_context.combined_validation_context.default_validation_context
    for domain in trust_domains(settings) if callers is None else ():
        entry = names.match_typed_subject_alt_names.add(san_type=SubjectAltNameMatcher.URI)
        entry.matcher.prefix = f"spiffe://{domain}/"
    for caller in callers or ():
        entry = names.match_typed_subject_alt_names.add(san_type=SubjectAltNameMatcher.URI)
        entry.matcher.safe_regex.regex = caller
    if callers == ():
        names.match_typed_subject_alt_names.add(san_type=SubjectAltNameMatcher.URI).matcher.exact = NOBODY
    return TransportSocket(name=TLS, typed_config=packed(context))


def automatic(cluster: Cluster, socket: TransportSocket) -> None:
    """Make a cluster use TLS (`socket`) to each endpoint that is marked for it, and plaintext to all other endpoints.
    The cluster does not change when a workload gets or loses a proxy, only its endpoints do."""
    marked, others = _matches()
    cluster.transport_socket_matches.add().CopyFrom(marked)
    cluster.transport_socket_matches[0].transport_socket.CopyFrom(socket)
    cluster.transport_socket_matches.add().CopyFrom(others)


def upstream(
    names: tuple[str, ...], server_name: str, protocols: tuple[str, ...], settings: Settings
) -> TransportSocket:
    """Return the caller's socket for mutual TLS between two proxies. The server must have one of the identities
    `names`, or the call fails. `server_name`: the SNI. `protocols`: the ALPN names to offer."""
    own = UpstreamTlsContext(sni=server_name)
    allowed = own.common_tls_context.combined_validation_context.default_validation_context
    allowed.match_typed_subject_alt_names.extend(map(name_matcher, names))
    result = TransportSocket(name=TLS)
    result.typed_config.type_url = _UPSTREAM
    # In protobuf, concatenated bytes are the merged message: the part that all clusters share is serialized once.
    result.typed_config.value = _shared_upstream(protocols, settings) + own.SerializeToString(deterministic=True)
    return result


@lru_cache(maxsize=64)
def _shared_upstream(protocols: tuple[str, ...], settings: Settings) -> bytes:
    context = UpstreamTlsContext(common_tls_context=_common(settings))
    context.common_tls_context.alpn_protocols.extend(protocols)
    serialized: bytes = context.SerializeToString(deterministic=True)
    return serialized


@lru_cache(maxsize=65536)
def name_matcher(name: str) -> SubjectAltNameMatcher:
    if "://" in name:
        kind = SubjectAltNameMatcher.URI
    elif "@" in name:
        kind = SubjectAltNameMatcher.EMAIL
    else:
        kind = SubjectAltNameMatcher.IP_ADDRESS if is_address(name) else SubjectAltNameMatcher.DNS
    result = SubjectAltNameMatcher(san_type=kind)
    result.matcher.exact = name
    return result


def identities(namespace: str, accounts: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Return the identities that endpoints of a service may have: those of its service `accounts` in its `namespace`,
    once for each trust domain of the mesh. A service without endpoints gets the identity of the account "", which no
    certificate has: without any identity, Envoy would accept every certificate of the mesh."""
    return tuple(
        str(Identity(domain, namespace, account)) for domain in trust_domains(settings) for account in accounts or ("",)
    )


def trust_domains(settings: Settings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((settings.trust_domain, *settings.trust_domain_aliases)))


@lru_cache(maxsize=4)
def offering(protocols: tuple[str, ...]) -> Filter:
    """Return a filter, placed before the terminal filter, by which connections of the chain offer these ALPN names
    (`protocols`) to any cluster, instead of the cluster's own."""
    value = FilterStateValue(object_key="envoy.network.application_protocols")
    value.format_string.text_format_source.inline_string = ",".join(protocols)
    value.shared_with_upstream = FilterStateValue.ONCE
    config = SetFilterState(on_new_connection=[value])
    return Filter(name="envoy.filters.network.set_filter_state", typed_config=packed(config))


@lru_cache(maxsize=1)
def _matches() -> tuple[Cluster.TransportSocketMatch, Cluster.TransportSocketMatch]:
    marked = Cluster.TransportSocketMatch(name=f"{_MATCH}-istio")
    marked.match.update(ENDPOINT_MATCH)
    raw = TransportSocket(name=_RAW, typed_config=packed(RawBuffer()))
    others = Cluster.TransportSocketMatch(name=f"{_MATCH}-disabled", transport_socket=raw)
    others.match.SetInParent()
    return marked, others


@lru_cache(maxsize=64)
def _common(settings: Settings) -> CommonTlsContext:
    result = CommonTlsContext(
        tls_params=TlsParameters(
            tls_minimum_protocol_version=(
                TlsParameters.TLSv1_3 if settings.mtls_least == "TLSV1_3" else TlsParameters.TLSv1_2
            ),
            tls_maximum_protocol_version=TlsParameters.TLSv1_3,
            cipher_suites=settings.mtls_ciphers,
        )
    )
    result.tls_certificate_sds_secret_configs.add(name=CERTIFICATE, sds_config=from_agent())
    roots = result.combined_validation_context.validation_context_sds_secret_config
    roots.name = ROOTS
    roots.sds_config.CopyFrom(from_agent())
    result.combined_validation_context.default_validation_context.SetInParent()
    return result


@lru_cache(maxsize=1)
def from_agent() -> ConfigSource:
    """Return the config source of the agent (SDS), without an initial fetch timeout: a proxy cannot work without an
    identity."""
    result = ConfigSource(resource_api_version=ApiVersion.V3)
    result.initial_fetch_timeout.SetInParent()
    source = result.api_config_source
    source.api_type = ApiConfigSource.GRPC
    source.transport_api_version = ApiVersion.V3
    source.set_node_on_first_message_only = True
    agent = source.grpc_services.add().envoy_grpc
    agent.cluster_name = SDS_CLUSTER
    agent.retry_policy.retry_back_off.base_interval.FromMilliseconds(100)
    agent.retry_policy.retry_back_off.max_interval.FromSeconds(1)
    return result
