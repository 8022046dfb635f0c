"""Reads the `tls` of a Gateway's server: its certificate, and which client certificates it accepts. A setting that
cannot be applied as written is rejected: a server that is less strict than configured would be worse than no server."""

from __future__ import annotations

import re

from weft.api.proxy_file import proxy_file
from weft.api.reader import Fields, quoted
from weft.api.syntax import is_object_name, words
from weft.base.suggest import did_you_mean
from weft.model.gateway import CertificateFiles, ServerTls, ServerTlsMode
from weft.model.names import CredentialRef

_A_SECRET = (
    "the name of a Secret",
    "write the name, without a namespace, of a Secret in the gateway's own namespace",
)
_VERSIONS = ("TLSV1_0", "TLSV1_1", "TLSV1_2", "TLSV1_3")
# The cipher suites that Envoy supports for TLS 1.2 and below; it rejects a listener with any other cipher suite.
_SUITES = words("""
    ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384
    ECDHE-RSA-AES256-GCM-SHA384 ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-CHACHA20-POLY1305
    ECDHE-ECDSA-AES128-SHA ECDHE-RSA-AES128-SHA ECDHE-ECDSA-AES256-SHA ECDHE-RSA-AES256-SHA
    AES128-GCM-SHA256 AES256-GCM-SHA384 AES128-SHA AES256-SHA
""")
_SHOWN = ("credentialName", "credentialNames", "serverCertificate", "privateKey", "tlsCertificates")
_AUTHORITIES = ("caCertificates", "caCertCredentialName")
_TRUSTED = (
    *_AUTHORITIES,
    "caCrl",
    "subjectAltNames",
    "verifyCertificateSpki",
    "verifyCertificateHash",
)
_HOW = ("minProtocolVersion", "maxProtocolVersion", "cipherSuites")
# The fields that each mode uses. Any other field would have no effect, and is an error.
_READ = {
    ServerTlsMode.PASSTHROUGH: (),
    ServerTlsMode.SIMPLE: (*_SHOWN, *_HOW),
    ServerTlsMode.MUTUAL: (*_SHOWN, *_TRUSTED, *_HOW),
    ServerTlsMode.OPTIONAL_MUTUAL: (*_SHOWN, *_TRUSTED, *_HOW),
    ServerTlsMode.ISTIO_MUTUAL: (),
}
_SPKI = re.compile(r"[A-Za-z0-9+/]{43}=")
_HASH = re.compile(r"[0-9A-Fa-f]{64}|(?:[0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}")


def read_server_tls(server: Fields, *, encrypted: bool, impossible: tuple[str, ...] = ()) -> ServerTls | None:
    """Read the `tls` of `server`, a server of a Gateway or an ingress listener of a Sidecar; None if the field is not
    set. `encrypted`: the protocol of its port is HTTPS or TLS. `impossible`: fields of `tls` that are an error for this
    kind of server."""
    tls = server.fields("tls")
    if tls is None:
        return None
    for name in impossible:
        tls.refused(name, f"`{name}` is not possible here", "use `serverCertificate` and `privateKey`")
    tls.told_elsewhere(*_SHOWN, *_TRUSTED, *_HOW)
    mode = ServerTlsMode(
        tls.choice("mode", tuple(ServerTlsMode), default="PASSTHROUGH", refused=("AUTO_PASSTHROUGH",)).replace(
            "AUTO_", ""
        )
    )
    if tls.raw("mode") == "AUTO_PASSTHROUGH":
        what = "AUTO_PASSTHROUGH is for meshes of several clusters, which weft does not support"
        tls.error("mode", what, "PASSTHROUGH with `tls` routes forwards connections by SNI")
    what = "weft does not support `insecureSkipVerify`: it does not accept invalid client certificates"
    tls.refused("insecureSkipVerify", what, "`mode: OPTIONAL_MUTUAL` accepts clients without a certificate")
    redirect = tls.boolean("httpsRedirect") or False
    if redirect and encrypted:
        tls.warning(
            "httpsRedirect",
            "`httpsRedirect` has no effect on a server with TLS",
            "set `httpsRedirect` on the server for plain HTTP",
        )
    idle = [name for name in (*_SHOWN, *_TRUSTED, *_HOW) if tls.has(name) and name not in _READ[mode]]
    if mode is ServerTlsMode.SIMPLE and idle and set(idle) <= set(_AUTHORITIES):
        what = f"{quoted(idle)} has no effect, since `mode` is SIMPLE: clients are not asked for a certificate"
        tls.warning(idle[0], what, f"remove {quoted(idle)}, or write mode: MUTUAL")
    elif idle:
        what = f"{quoted(idle)} would have no effect, since `mode` is {mode if tls.has('mode') else 'missing'}"
        meant = ServerTlsMode.SIMPLE if set(idle).isdisjoint(_TRUSTED) else ServerTlsMode.MUTUAL
        hint = f"leave out {quoted(idle)}, or set another `mode`"
        tls.error(idle[0], what, hint if tls.has("mode") else f"write mode: {meant}; the default is PASSTHROUGH")
    found = ServerTls(
        mode=mode,
        https_redirect=redirect and not encrypted,
        credentials=_credentials(tls),
        files=_files(tls),
        authorities=proxy_file(tls, "caCertificates"),
        authorities_credential=CredentialRef(_secret(tls, "caCertCredentialName"))
        if tls.has("caCertCredentialName")
        else None,
        revoked=proxy_file(tls, "caCrl"),
        subject_alt_names=tls.texts("subjectAltNames"),
        spki=_digests(tls, "verifyCertificateSpki", _SPKI, "the base64 of a SHA-256 digest"),
        hashes=_digests(tls, "verifyCertificateHash", _HASH, "the hexadecimal of a SHA-256 digest"),
        minimum_version=tls.choice("minProtocolVersion", ("TLS_AUTO", *_VERSIONS)),
        maximum_version=tls.choice("maxProtocolVersion", ("TLS_AUTO", *_VERSIONS)),
        cipher_suites=_suites(tls),
    )
    if encrypted:
        _check_complete(tls, found)
    _check_versions(tls, found)
    return found


def _check_complete(tls: Fields, found: ServerTls) -> None:
    ways = [
        name
        for name, there in (
            ("credentialName", tls.has("credentialName")),
            ("credentialNames", tls.has("credentialNames")),
            ("serverCertificate", tls.has("serverCertificate") or tls.has("privateKey")),
            ("tlsCertificates", tls.has("tlsCertificates")),
        )
        if there
    ]
    if len(ways) > 1:
        tls.error(ways[1], f"only one of {quoted(ways)} may be set")
    if found.mode in (ServerTlsMode.PASSTHROUGH, ServerTlsMode.ISTIO_MUTUAL):
        return
    if not ways:
        what = f"`mode: {found.mode}` needs a certificate"
        tls.lacks("credentialName", what=what, hint="set `credentialName`, or `serverCertificate` and `privateKey`")
    if found.mode is ServerTlsMode.SIMPLE:
        return
    if found.files and not found.authorities and found.authorities_credential is None:
        what = f"`mode: {found.mode}` needs `caCertificates`"
        tls.lacks("caCertificates", what=what, hint="name a file in the proxy's file system")
    if found.authorities and found.authorities_credential is not None:
        tls.error("caCertCredentialName", "only one of `caCertificates` and `caCertCredentialName` may be set")
    if found.revoked and not found.authorities:
        what = "`caCrl` needs `caCertificates`"
        tls.error("caCrl", what, "in a Secret, write the revocation list as `ca.crl`")


def _check_versions(tls: Fields, found: ServerTls) -> None:
    least, most = found.minimum_version, found.maximum_version
    if least in _VERSIONS and most in _VERSIONS and _VERSIONS.index(least) > _VERSIONS.index(most):
        tls.error("maxProtocolVersion", f"`maxProtocolVersion` {most} is below `minProtocolVersion` {least}")
    if most in ("TLSV1_0", "TLSV1_1") and least not in _VERSIONS:
        tls.error(
            "maxProtocolVersion",
            f"`maxProtocolVersion` {most} needs a `minProtocolVersion`: the default minimum is TLS 1.2",
        )


def _credentials(tls: Fields) -> tuple[CredentialRef, ...]:
    if tls.has("credentialNames"):
        found = tls.checked_texts("credentialNames", is_object_name, *_A_SECRET, most=253)
        written = tls.raw("credentialNames")
        if isinstance(written, list) and not 0 < len(written) <= 2:
            tls.error(
                "credentialNames",
                "`credentialNames` must have one or two Secrets",
                "list one with an RSA key, one with an ECDSA key, or one of each",
            )
        return tuple(map(CredentialRef, found))
    name = _secret(tls, "credentialName")
    return (CredentialRef(name),) if name else ()


def _secret(tls: Fields, field: str) -> str:
    return tls.checked(field, is_object_name, *_A_SECRET, most=253)


def _files(tls: Fields) -> tuple[CertificateFiles, ...]:
    if tls.has("tlsCertificates"):
        found = []
        for each in tls.items("tlsCertificates"):
            each.ignored("caCertificates")
            if each.has("caCertificates"):
                what = "`caCertificates` in `tlsCertificates` has no effect"
                each.warning("caCertificates", what, "put it beside `tlsCertificates`")
            certificate = proxy_file(each, "serverCertificate", required=True)
            found.append(CertificateFiles(certificate, proxy_file(each, "privateKey", required=True)))
        if not 0 < len(found) <= 2:
            tls.error(
                "tlsCertificates",
                "`tlsCertificates` must have one or two entries",
                "list one with an RSA key, one with an ECDSA key, or one of each",
            )
        return tuple(found)
    certificate, key = proxy_file(tls, "serverCertificate"), proxy_file(tls, "privateKey")
    for name, there, other in (("serverCertificate", certificate, key), ("privateKey", key, certificate)):
        if other and not there:
            tls.lacks(name, what=f"`{name}` is missing", hint="name a file in the proxy's file system")
    return (CertificateFiles(certificate, key),) if certificate and key else ()


def _digests(tls: Fields, name: str, form: re.Pattern[str], what: str) -> tuple[str, ...]:
    found = tls.texts(name, most=200)
    for index, each in enumerate(found):
        if not form.fullmatch(each):
            tls.error((name, index), f"`{each[:80]}` is not {what}")
    return found


def _suites(tls: Fields) -> tuple[str, ...]:
    found = tls.texts("cipherSuites", most=80)
    for index, name in enumerate(found):
        if name not in _SUITES:
            hint = did_you_mean(name, _SUITES) or f"for example {_SUITES[0]}"
            what = f"`{name[:80]}` is not a cipher suite that Envoy supports, and is ignored"
            tls.warning(("cipherSuites", index), what, hint)
        elif name in found[:index]:
            tls.warning(("cipherSuites", index), f"`{name}` is listed twice")
    known = tuple(dict.fromkeys(name for name in found if name in _SUITES))
    if found and not known:
        what = "Envoy supports none of these cipher suites, so its default cipher suites are used"
        tls.warning("cipherSuites", what, f"for example {_SUITES[0]}")
    return known
