"""Translates TLS origination by a DestinationRule (SIMPLE, MUTUAL), to hosts outside the mesh.

Certificates and keys are either files in the proxy's file system or come from a Kubernetes Secret. For files, the proxy
gets an SDS secret with their paths; Envoy reads the files itself and reloads them when they are replaced. For a Secret,
the SDS secret has its content. By default only the system's CAs are trusted, and the server's certificate must be for
the requested server name.
"""

from __future__ import annotations

from functools import lru_cache
from posixpath import dirname

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.config_source_pb2 import ApiVersion, ConfigSource
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import TlsParameters
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from weft.model.credential import Credential
from weft.model.destination_rule import ClientTls, ClientTlsMode
from weft.model.edge import AUTHORITIES
from weft.model.names import ObjectKey
from weft.model.service import Service, ServicePort
from weft.translate.built import Built, build
from weft.translate.protos import packed
from weft.translate.tls import SYSTEM_ROOTS, TLS, name_matcher


def is_foreign(written: ClientTls | None) -> bool:
    return written is not None and written.mode in (ClientTlsMode.SIMPLE, ClientTlsMode.MUTUAL)


def originate(cluster: Cluster, service: Service, port: ServicePort, written: ClientTls) -> None:
    context = UpstreamTlsContext(sni=server_name(service, port, written))
    common = context.common_tls_context
    common.tls_params.tls_minimum_protocol_version = TlsParameters.TLSv1_2
    common.tls_params.tls_maximum_protocol_version = TlsParameters.TLSv1_3
    if written.mode is ClientTlsMode.MUTUAL:
        common.tls_certificate_sds_secret_configs.add(name=certificate_name(cluster.name), sds_config=by_ads())
    if written.verify:
        common.combined_validation_context.default_validation_context.match_typed_subject_alt_names.extend(
            name_matcher(name) for name in _names(service, port, written)
        )
        roots = common.combined_validation_context.validation_context_sds_secret_config
        roots.name = _roots(cluster.name)
        roots.sds_config.CopyFrom(by_ads())
    else:
        common.validation_context.SetInParent()
    cluster.transport_socket.name = TLS
    cluster.transport_socket.typed_config.CopyFrom(packed(context))


def secrets(
    cluster: str, written: ClientTls, sources: tuple[ObjectKey, ...], credentials: tuple[Credential, ...] = ()
) -> tuple[Built, ...]:
    """Return the SDS secrets of a cluster: with the paths of files, or with the content of a Kubernetes Secret.
    `written`: the TLS settings. `sources`: the objects that the cluster is made from. `credentials`: the Secrets that
    the settings may name."""
    if written.credential:
        return _out_of_secret(cluster, written, sources, credentials)
    sds_secrets = []
    presented = next((each for each in credentials if each.reference == written.pair), None)
    if presented is not None:
        sds_secrets.append(pair_secret(certificate_name(cluster), presented))
    elif written.mode is ClientTlsMode.MUTUAL:
        pair = Secret(name=certificate_name(cluster))
        pair.tls_certificate.certificate_chain.filename = written.certificate
        pair.tls_certificate.private_key.filename = written.private_key
        pair.tls_certificate.watched_directory.path = dirname(written.certificate)
        sds_secrets.append(pair)
    if written.verify:
        roots = Secret(name=_roots(cluster))
        if written.roots:
            roots.validation_context.trusted_ca.inline_string = written.roots
        else:
            file = written.authorities or SYSTEM_ROOTS
            roots.validation_context.trusted_ca.filename = file
            roots.validation_context.watched_directory.path = dirname(file)
        if written.revoked:
            roots.validation_context.crl.filename = written.revoked
        sds_secrets.append(roots)
    return tuple(build(secret.name, secret, sources) for secret in sds_secrets)


def _out_of_secret(
    cluster: str, written: ClientTls, sources: tuple[ObjectKey, ...], credentials: tuple[Credential, ...]
) -> tuple[Built, ...]:
    """Return the SDS secrets of a cluster with the content of a Kubernetes Secret. Their names contain the cluster's
    name: if another cluster with the same Secret is removed, these secrets must stay. The CA in the Secret
    `NAME-cacert` has precedence over the CA in the Secret NAME. The other parameters are as for `secrets`."""
    sds_secrets = []
    own = next((each for each in credentials if each.name == written.credential), None)
    names = (f"{written.credential}{AUTHORITIES}", written.credential)
    trusted = next((each for name in names for each in credentials if each.name == name and each.roots), None)
    if written.mode is ClientTlsMode.MUTUAL and own is not None:
        sds_secrets.append(pair_secret(certificate_name(cluster), own))
    if written.verify and trusted is not None:
        sds_secrets.append(roots_secret(_roots(cluster), trusted))
    return tuple(build(secret.name, secret, sources) for secret in sds_secrets)


def pair_secret(name: str, credential: Credential) -> Secret:
    result = Secret(name=name)
    result.tls_certificate.certificate_chain.inline_bytes = credential.chain
    result.tls_certificate.private_key.inline_bytes = credential.private_key
    return result


def roots_secret(name: str, credential: Credential) -> Secret:
    result = Secret(name=name)
    result.validation_context.trusted_ca.inline_bytes = credential.roots
    if credential.revoked:
        result.validation_context.crl.inline_bytes = credential.revoked
    return result


def name_by_request(options: HttpProtocolOptions, service: Service, port: ServicePort, written: ClientTls) -> None:
    """For an HTTP port, set in `options` that Envoy uses the host of each request as SNI, unless the TLS settings
    `written` have an SNI. If, in addition, the server is to be verified, and neither the settings nor the service have
    subject alternative names, the server's certificate must be for that host."""
    if port.protocol.is_http and not written.server_name:
        options.upstream_http_protocol_options.auto_sni = True
        if written.verify and not (written.subject_alt_names or service.subject_alt_names):
            options.upstream_http_protocol_options.auto_san_validation = True


def server_name(service: Service, port: ServicePort, written: ClientTls) -> str:
    if written.server_name or port.protocol.is_http or service.host.startswith("*"):
        return written.server_name
    return service.host


def _names(service: Service, port: ServicePort, written: ClientTls) -> tuple[str, ...]:
    """Return the names of which the server's certificate must have one: those in the TLS settings `written` or of the
    service, else the requested server name. Without any name, Envoy would accept a certificate for any host."""
    named = server_name(service, port, written)
    return written.subject_alt_names or service.subject_alt_names or ((named,) if named else ())


def certificate_name(cluster: str) -> str:
    """Return the name of the SDS secret with the client certificate of a cluster."""
    return f"{cluster}/certificate"


def _roots(cluster: str) -> str:
    return f"{cluster}/roots"


@lru_cache(maxsize=1)
def by_ads() -> ConfigSource:
    """Return the ADS config source with an initial fetch timeout of 5 s: a missing certificate file of one host must
    not keep a proxy from starting."""
    result = ConfigSource(resource_api_version=ApiVersion.V3)
    result.ads.SetInParent()
    result.initial_fetch_timeout.FromSeconds(5)
    return result
