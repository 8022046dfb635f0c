import pytest

from api.reading import istio, told, value
from weft.model.gateway import CertificateFiles, ServerTls, ServerTlsMode
from weft.model.names import CredentialRef

SPKI = "NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A="


def gateway(tls, protocol="HTTPS"):
    port = f"{{number: 443, name: a, protocol: {protocol}}}"
    return istio("Gateway", f"servers: [{{port: {port}, hosts: [a.b], tls: {{{tls}}}}}]")


def read(tls, protocol="HTTPS"):
    return value(gateway(tls, protocol)).servers[0].tls


def test_reads_server_certificates_and_accepted_client_certificates():
    assert read("mode: SIMPLE, credentialName: c") == ServerTls(ServerTlsMode.SIMPLE, credentials=(CredentialRef("c"),))
    assert read("mode: SIMPLE, credentialNames: [c, d]").credentials == (CredentialRef("c"), CredentialRef("d"))
    files = "serverCertificate: /a, privateKey: /b"
    assert read(f"mode: SIMPLE, {files}").files == (CertificateFiles("/a", "/b"),)
    assert read("mode: SIMPLE, tlsCertificates: [{serverCertificate: /a, privateKey: /b}]").files == (
        CertificateFiles("/a", "/b"),
    )
    found = read(
        f"mode: MUTUAL, {files}, caCertificates: /c, caCrl: /d, subjectAltNames: [x], verifyCertificateSpki: [{SPKI}], "
        f"verifyCertificateHash: [{'ab' * 32}], minProtocolVersion: TLSV1_2, cipherSuites: "
        "[ECDHE-RSA-AES128-GCM-SHA256]"
    )
    assert (found.authorities, found.revoked, found.subject_alt_names, found.spki) == ("/c", "/d", ("x",), (SPKI,))
    assert (found.minimum_version, found.cipher_suites) == ("TLSV1_2", ("ECDHE-RSA-AES128-GCM-SHA256",))
    assert read("mode: MUTUAL, credentialName: c, caCertCredentialName: d").authorities_credential == CredentialRef("d")
    assert read("mode: ISTIO_MUTUAL").terminates
    assert not read("mode: PASSTHROUGH").terminates


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ("mode: AUTO_PASSTHROUGH", "AUTO_PASSTHROUGH is for meshes of several clusters"),
        ("mode: SIMPLE", "`mode: SIMPLE` needs a certificate"),
        ("mode: MUTUAL, credentialName: c, insecureSkipVerify: true", "does not accept invalid client certificates"),
        ("mode: PASSTHROUGH, credentialName: c", "`credentialName` would have no effect, since `mode` is PASSTHROUGH"),
        ("credentialName: c", "`credentialName` would have no effect, since `mode` is missing"),
        ("mode: ISTIO_MUTUAL, credentialName: c", "`credentialName` would have no effect"),
        ("mode: ISTIO_MUTUAL, minProtocolVersion: TLSV1_3", "`minProtocolVersion` would have no effect"),
        ("mode: SIMPLE, credentialName: c, subjectAltNames: [a]", "`subjectAltNames` would have no effect"),
        ("mode: SIMPLE, credentialName: c, serverCertificate: /a, privateKey: /b", "only one of `credentialName`"),
        ("mode: SIMPLE, credentialName: a/b", "`a/b` is not the name of a Secret"),
        ("mode: SIMPLE, credentialNames: [a, b, c]", "`credentialNames` must have one or two Secrets"),
        ("mode: SIMPLE, serverCertificate: /a", "`privateKey` is missing"),
        ("mode: SIMPLE, serverCertificate: /a/, privateKey: /b", "`/a/` is not the path of a file"),
        (
            "mode: SIMPLE, credentialName: c, caCertificates: /c, caCrl: /d",
            "`caCertificates`, `caCrl` would have no effect",
        ),
        ("mode: SIMPLE, tlsCertificates: []", "`tlsCertificates` must have one or two entries"),
        ("mode: SIMPLE, tlsCertificates: [{serverCertificate: /a}]", "`privateKey` is required"),
        ("mode: MUTUAL, serverCertificate: /a, privateKey: /b", "`mode: MUTUAL` needs `caCertificates`"),
        ("mode: MUTUAL, credentialName: c, caCrl: /d", "`caCrl` needs `caCertificates`"),
        (
            "mode: MUTUAL, credentialName: c, caCertificates: /c, caCertCredentialName: d",
            "only one of `caCertificates`",
        ),
        (
            "mode: MUTUAL, credentialName: c, verifyCertificateSpki: [abc]",
            "`abc` is not the base64 of a SHA-256 digest",
        ),
        ("mode: MUTUAL, credentialName: c, verifyCertificateHash: [abc]", "`abc` is not the hexadecimal"),
        (
            "mode: SIMPLE, credentialName: c, minProtocolVersion: TLSV1_3, maxProtocolVersion: TLSV1_2",
            "`maxProtocolVersion` TLSV1_2 is below `minProtocolVersion` TLSV1_3",
        ),
        (
            "mode: SIMPLE, credentialName: c, maxProtocolVersion: TLSV1_1",
            "needs a `minProtocolVersion`: the default minimum is TLS 1.2",
        ),
        ("mode: SIMPLE, credentialName: c, minProtocolVersion: TLS1", "`minProtocolVersion` cannot be `TLS1`"),
    ],
)
def test_settings_that_cannot_be_applied_exactly_are_rejected(tls, said):
    found = told(gateway(tls))
    assert any(said in line for line in found), found


def test_https_redirect_on_a_tls_server_is_reported_as_without_effect():
    (line,) = told(gateway("mode: SIMPLE, credentialName: c, httpsRedirect: true"))
    assert "warning: `httpsRedirect` has no effect on a server with TLS" in line
    assert read("mode: SIMPLE, credentialName: c, httpsRedirect: true").https_redirect is False


def test_a_ca_is_ignored_with_a_warning_where_no_client_certificate_is_requested():
    (line,) = told(gateway("mode: SIMPLE, credentialName: c, caCertificates: /c"))
    assert "warning: `caCertificates` has no effect, since `mode` is SIMPLE" in line
    files = "serverCertificate: /a, privateKey: /b, caCertificates: /c"
    (line,) = told(gateway(f"mode: SIMPLE, tlsCertificates: [{{{files}}}]"))
    assert "warning: `caCertificates` in `tlsCertificates` has no effect" in line


def test_unknown_and_repeated_cipher_suites_are_ignored_with_a_warning():
    tls = "mode: SIMPLE, credentialName: c, cipherSuites: [RC4, AES128-SHA, AES128-SHA]"
    first, second = told(gateway(tls))
    assert "warning: `RC4` is not a cipher suite that Envoy supports, and is ignored" in first
    assert "warning: `AES128-SHA` is listed twice" in second
    assert read(tls).cipher_suites == ("AES128-SHA",)
    lines = told(gateway("mode: SIMPLE, credentialName: c, cipherSuites: [RC4]"))
    assert any("Envoy supports none of these cipher suites" in line for line in lines)


def test_a_relative_path_begins_at_the_root_of_the_file_system():
    assert read("mode: SIMPLE, serverCertificate: a/b, privateKey: ./c").files == (CertificateFiles("/a/b", "/./c"),)
