"""Translates TLS termination at a gateway: its certificates, and the client certificates that it accepts.

Certificates are separate SDS secrets, so that a renewed certificate replaces no listener. An SDS secret has either the
content of a Kubernetes Secret, and then Istio's name for it (`kubernetes://NAME`, `NAME-cacert`), or paths of files,
which Envoy reads itself and reloads when they are replaced. Rule: a server with a missing certificate has no TLS
socket, and closes connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from posixpath import dirname

import msgspec
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import CertificateValidationContext, TlsParameters
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import CommonTlsContext, DownstreamTlsContext

from weft.mesh.gateways import vouching
from weft.model.credential import Credential
from weft.model.edge import AUTHORITIES
from weft.model.gateway import CertificateFiles, GatewayServer, ServerTls, ServerTlsMode
from weft.model.names import CredentialRef, ObjectKey
from weft.model.peer_authentication import TlsMode
from weft.model.service import Protocol
from weft.translate import tls
from weft.translate.built import Built, build
from weft.translate.origination import by_ads, pair_secret, roots_secret
from weft.translate.protos import packed
from weft.translate.provenance import keys
from weft.translate.view import GroupView

_VERSIONS = {
    "TLSV1_0": TlsParameters.TLSv1_0,
    "TLSV1_1": TlsParameters.TLSv1_1,
    "TLSV1_2": TlsParameters.TLSv1_2,
    "TLSV1_3": TlsParameters.TLSv1_3,
}
_ALPN = ("h2", "http/1.1")
ROOTS = "roots:"


class CertificateText(msgspec.Struct, frozen=True):
    pem: str


class _Shown(msgspec.Struct, frozen=True):
    """The certificates, the trusted CA and the revocation list of one server. `pairs`: for each certificate with its
    key, the name of the SDS secret and where its content is: a Secret or files. `roots`: the same for the CA that
    verifies clients: a Secret, text in the object itself, or the path of a file; None if clients need no certificate.
    `revoked`: the path of a file with a revocation list; "" for none."""

    pairs: tuple[tuple[str, Credential | CertificateFiles], ...] = ()
    roots: tuple[str, Credential | CertificateText | str] | None = None  # CA: a Secret's, inline, or a file
    revoked: str = ""  # a file with a revocation list


def downstream(server: GatewayServer, view: GroupView) -> TransportSocket | None:
    """Return the TLS socket of a server; None if it has no TLS, or if a certificate that it needs is missing."""
    written = server.tls
    if written is None:
        return None
    return terminating(written, view, http=server.port.protocol is Protocol.HTTPS)


def terminating(written: ServerTls, view: GroupView, *, http: bool) -> TransportSocket | None:
    """Return a socket that terminates TLS with the settings `written` of a server; None if a certificate that it needs
    is missing. `http`: offer the ALPN of HTTP."""
    if written.mode is ServerTlsMode.ISTIO_MUTUAL:
        return tls.downstream(view.settings)
    shown = _shown(written, view)
    if shown is None:
        return None
    context = DownstreamTlsContext()
    context.require_client_certificate.value = written.mode is ServerTlsMode.MUTUAL
    common = context.common_tls_context
    common.alpn_protocols.extend(_ALPN if http else ())
    common.tls_params.CopyFrom(_parameters(written))
    for name, _ in shown.pairs:
        common.tls_certificate_sds_secret_configs.add(name=name, sds_config=by_ads())
    if shown.roots is not None:
        _let_in(common, written, shown.roots[0])
    return TransportSocket(name=tls.TLS, typed_config=packed(context))


def secrets(view: GroupView) -> tuple[Built, ...]:
    """Return the SDS secrets of all servers of a gateway, each secret once."""
    by_name: dict[str, Built] = {}
    for served in view.servers:
        shown = _shown(served.bound.server.tls, view) if served.bound.server.tls else None
        if shown is not None and served.bound.server.encrypted:
            for secret in _secrets(shown, keys(served.bound.origin)):
                by_name.setdefault(secret.name, secret)
    return tuple(by_name.values())


def workload_secrets(view: GroupView) -> tuple[Built, ...]:
    """Return the SDS secrets of the TLS that a sidecar terminates for its workload."""
    by_name: dict[str, Built] = {}
    for port in view.inbound:
        shown = (
            _shown(port.tls, view) if port.tls is not None and view.modes.at(port.number) is TlsMode.DISABLE else None
        )
        for secret in _secrets(shown, ()) if shown is not None else ():
            by_name.setdefault(secret.name, secret)
    return tuple(by_name.values())


def missing(tls: ServerTls, view: GroupView) -> tuple[str, ...]:
    """Return the reasons why a server's Secrets cannot be used: they do not exist, may not be used, or lack a key or
    certificate. Empty if they can be used."""
    if tls.terminates and tls.mode is not ServerTlsMode.ISTIO_MUTUAL and not tls.credentials and not tls.files:
        return ("the server may not use any certificate that it names",)
    reasons = []
    for reference in tls.credentials:
        credential = _credential(reference, view)
        if credential is None:
            reasons.append(f"there is no Secret {_place(reference, view)}")
        elif not credential.chain or not credential.private_key:
            reasons.append(f"the Secret {_place(reference, view)} has no certificate with its key")
    if tls.asks and not tls.authorities and not tls.roots and not reasons and _authorities(tls, view) is None:
        named = tls.authorities_credential or (tls.credentials[0] if tls.credentials else CredentialRef(""))
        reasons.append(f"no Secret has the trusted CA: {_place(named, view)} has no `ca.crt`")
    return tuple(reasons)


def credential_name(reference: CredentialRef, namespace: str) -> str:
    """Return the name of the SDS secret for the Kubernetes Secret `reference`, as proxies of `namespace` request it."""
    if reference.namespace in ("", namespace):
        return f"kubernetes://{reference.name}"
    return f"kubernetes-gateway://{reference.namespace}/{reference.name}"


def roots_name(roots: str) -> str:
    """Return the name of the SDS secret with the CA that verifies client certificates, for a CA whose certificates
    (`roots`, in PEM) are inline in the object. The name contains their digest."""
    return f"{ROOTS}{sha256(roots.encode()).hexdigest()[:16]}"


def _shown(written: ServerTls, view: GroupView) -> _Shown | None:
    if not written.terminates or written.mode is ServerTlsMode.ISTIO_MUTUAL:
        return _Shown()
    if missing(written, view):
        return None
    pairs: list[tuple[str, Credential | CertificateFiles]] = []
    for reference in written.credentials:
        credential = _credential(reference, view)
        if credential is not None:
            pairs.append((credential_name(reference, view.namespace), credential))
    pairs += ((f"file-cert:{each.certificate}~{each.private_key}", each) for each in written.files)
    roots: tuple[str, Credential | CertificateText | str] | None = None
    if written.asks:
        if written.authorities:
            roots = (
                f"file-root:{written.authorities}{f'~{written.revoked}' if written.revoked else ''}",
                written.authorities,
            )
        elif written.roots:
            roots = (roots_name(written.roots), CertificateText(written.roots))
        elif (trusted := _authorities(written, view)) is not None:
            roots = (_roots_name(written, trusted, view), trusted)
    return _Shown(tuple(pairs), roots, written.revoked) if pairs else None


def _roots_name(written: ServerTls, trusted: Credential, view: GroupView) -> str:
    """Return the name of the SDS secret with the CA certificates that verify clients. With
    `caCertCredentialName: X` the name is `X~authorities`. Otherwise it is Istio's `NAME-cacert`, where NAME is the
    server's first credential, even if the CA is in the Secret NAME itself. The suffixes differ because two servers of a
    gateway may name one Secret in these two ways and then trust different CAs. `trusted`: the Secret with the CA."""
    if written.authorities_credential is not None:
        return f"{credential_name(trusted.reference, view.namespace)}~authorities"
    return f"{credential_name(written.credentials[0], view.namespace)}{AUTHORITIES}"


def _authorities(written: ServerTls, view: GroupView) -> Credential | None:
    candidates = (_credential(each, view) for each in vouching(written))
    return next((each for each in candidates if each is not None and each.roots), None)


def _credential(reference: CredentialRef, view: GroupView) -> Credential | None:
    wanted = (reference.namespace or view.namespace, reference.name)
    return next((each for each in view.credentials if (each.namespace, each.name) == wanted), None)


def _place(reference: CredentialRef, view: GroupView) -> str:
    return f"{reference.namespace or view.namespace}/{reference.name}"


def _parameters(written: ServerTls) -> TlsParameters:
    return TlsParameters(
        tls_minimum_protocol_version=_VERSIONS.get(written.minimum_version, TlsParameters.TLSv1_2),
        tls_maximum_protocol_version=_VERSIONS.get(written.maximum_version, TlsParameters.TLSv1_3),
        cipher_suites=written.cipher_suites,
    )


def _let_in(common: CommonTlsContext, written: ServerTls, roots: str) -> None:
    wanted = common.combined_validation_context.default_validation_context
    wanted.SetInParent()
    if written.unverified:
        wanted.trust_chain_verification = CertificateValidationContext.ACCEPT_UNTRUSTED
    wanted.match_typed_subject_alt_names.extend(map(tls.name_matcher, written.subject_alt_names))
    wanted.verify_certificate_spki.extend(written.spki)
    wanted.verify_certificate_hash.extend(written.hashes)
    source = common.combined_validation_context.validation_context_sds_secret_config
    source.name = roots
    source.sds_config.CopyFrom(by_ads())


def _secrets(shown: _Shown, sources: tuple[ObjectKey, ...]) -> Iterator[Built]:
    for name, source in shown.pairs:
        if isinstance(source, Credential):
            yield build(name, pair_secret(name, source), (*keys(source.origin), *sources))
        else:
            pair = Secret(name=name)
            pair.tls_certificate.certificate_chain.filename = source.certificate
            pair.tls_certificate.private_key.filename = source.private_key
            pair.tls_certificate.watched_directory.path = dirname(source.certificate)
            yield build(name, pair, sources)
    if shown.roots is None:
        return
    name, trusted = shown.roots
    if isinstance(trusted, Credential):
        yield build(name, roots_secret(name, trusted), (*keys(trusted.origin), *sources))
    elif isinstance(trusted, CertificateText):
        inline = Secret(name=name)
        inline.validation_context.trusted_ca.inline_string = trusted.pem
        yield build(name, inline, sources)
    else:
        roots = Secret(name=name)
        roots.validation_context.trusted_ca.filename = trusted
        roots.validation_context.watched_directory.path = dirname(trusted)
        if shown.revoked:
            roots.validation_context.crl.filename = shown.revoked
        yield build(name, roots, sources)
