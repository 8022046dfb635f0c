"""TLS termination at a real gateway: its certificates, the clients it accepts, and that it closes connections if
anything is missing."""

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tools.ports import free_port

from authority import Authority
from eventually import eventually
from fields import proves
from gateway_rig import application, ask, entry, gateway, pair, secret, trusting
from weft.api.document import Change
from weft.history.persistence import Memory
from weft.inspect.attach import attach_debug
from weft.model.names import ObjectKey

HOST = "shop.example.com"
ROUTES = """---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: any, namespace: shop}
spec:
  hosts: ["*"]
  gateways: [edge/public]
  http: [{route: [{destination: {host: web}}]}]
"""


def server(tls, *, hosts=f"[{HOST}]", name="https", protocol="HTTPS"):
    return f"""
    - port: {{number: PORT, name: {name}, protocol: {protocol}}}
      hosts: {hosts}
      tls: {tls}"""


def gateways(*servers):
    return f"""apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers:{"".join(servers)}
"""


class Edge:
    def __init__(self, made, port):
        self.made, self.port = made, port

    def apply(self, text):
        self.made.apply(text.replace("PORT", str(self.port)).removeprefix("---\n"))

    async def ask(self, host=HOST, **more):
        return await ask(self.port, host, **more)

    async def until(self, status, host=HOST, **more):
        """Send requests until the status is this; None: until the connection is closed."""

        async def answers():
            found = await self.ask(host, **more)
            return (found.status if found else None) == status

        await eventually(answers)


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def edge():
    """Makes a gateway of these servers and Secrets."""

    @contextlib.asynccontextmanager
    async def made(text):
        port = free_port()
        async with application("web") as web:
            whole = (text + ROUTES + entry("web", web)).replace("PORT", str(port))
            async with gateway(whole, listening=(port,)) as found:
                yield Edge(found, port)

    return made


@proves("Gateway", "spec.servers[].tls.mode", "spec.servers[].tls.credentialName")
async def test_with_mode_simple_a_gateway_serves_the_certificate_of_a_secret_and_its_renewal(edge, authority):
    first, second = authority.issue(HOST), Authority().issue(HOST)
    async with edge(gateways(server("{mode: SIMPLE, credentialName: shop}")) + pair("shop", first)) as made:
        found = await made.ask(tls=trusting(first))
        assert found.status == 200 and found.header("x-forwarded-proto") == "https"
        assert await made.ask(tls=trusting(second)) is None
        made.apply(pair("shop", second))
        await made.until(200, tls=trusting(second))
        assert await made.ask() is None  # plaintext


async def test_a_missing_secret_closes_connections_for_its_server_names_only(edge, authority):
    known, late = authority.issue(HOST), authority.issue("late.example.com")
    text = gateways(
        server("{mode: SIMPLE, credentialName: shop}", hosts='["*"]'),
        server("{mode: SIMPLE, credentialName: late}", hosts="[late.example.com]", name="late"),
    )
    async with edge(text + pair("shop", known)) as made:
        assert (await made.ask(tls=trusting(known))).status == 200
        assert await made.ask("late.example.com", tls=trusting(known)) is None
        made.apply(pair("late", late))
        await made.until(200, "late.example.com", tls=trusting(late))
        made.made.plane.apply([Change(ObjectKey("Secret", "edge", "late"), None)])
        await made.until(None, "late.example.com", tls=trusting(late))
        assert (await made.ask(tls=trusting(known))).status == 200


STANDARD = """apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  gatewayClassName: weft
  listeners:
  - {name: wide, port: PORT, protocol: HTTPS, hostname: WIDE, tls: {certificateRefs: [{name: wide}]}}
  - {name: near, port: PORT, protocol: HTTPS, hostname: near.example.com,
     tls: {certificateRefs: [{name: near, namespace: bank}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: any, namespace: edge}
spec:
  parentRefs: [{name: public}]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {statusCode: 302, hostname: elsewhere.example.com}}]}]
"""
GRANT = """apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: near, namespace: bank}
spec:
  from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: edge}]
  to: [{group: "", kind: Secret}]
"""


@pytest.mark.parametrize("wide", ["'*.example.com'", "''"])
async def test_a_forbidden_certificate_closes_its_server_names_and_a_wider_listener_does_not_serve_them(
    authority, wide
):
    port, near = free_port(), "near.example.com"
    shown, other = authority.issue("*.example.com"), authority.issue(near)
    secrets = pair("wide", shown) + pair("near", other).replace("namespace: edge", "namespace: bank")
    text = STANDARD.replace("PORT", str(port)).replace("WIDE", wide) + secrets
    labels = {"gateway.networking.k8s.io/gateway-name": "public"}
    async with gateway(text, labels=labels, listening=(port,)) as made:
        edge = Edge(made, port)
        await edge.until(302, "far.example.com", tls=trusting(shown))
        assert await edge.ask(near, tls=trusting(shown)) is None
        assert (await edge.ask(near, tls=trusting(shown), name="far.example.com")).status == 421
        made.apply(GRANT)
        await edge.until(302, near, tls=trusting(other))
        made.plane.apply([Change(ObjectKey("ReferenceGrant", "bank", "near"), None)])
        await edge.until(None, near, tls=trusting(other))
        assert await edge.ask(near, tls=trusting(shown)) is None


@proves("Gateway", "spec.servers[].tls.serverCertificate", "spec.servers[].tls.privateKey")
async def test_certificate_files_are_served_and_reloaded_when_replaced(edge, authority, tmp_path):
    first, second = authority.issue(HOST), Authority().issue(HOST)

    def write(shown):
        for name, content in (("tls.key", shown.key), ("tls.crt", shown.certificate)):
            (tmp_path / f".{name}").write_bytes(content)
            (tmp_path / f".{name}").rename(tmp_path / name)

    write(first)
    tls = f"{{mode: SIMPLE, serverCertificate: {tmp_path}/tls.crt, privateKey: {tmp_path}/tls.key}}"
    async with edge(gateways(server(tls))) as made:
        assert (await made.ask(tls=trusting(first))).status == 200
        write(second)
        await made.until(200, tls=trusting(second))


async def test_relative_paths_an_unused_ca_and_unknown_ciphers_leave_a_server_working(edge, authority, tmp_path):
    shown = authority.issue(HOST)
    (tmp_path / "tls.crt").write_bytes(shown.certificate)
    (tmp_path / "tls.key").write_bytes(shown.key)
    place = str(tmp_path).removeprefix("/")
    tls = (
        f"{{mode: SIMPLE, serverCertificate: {place}/tls.crt, privateKey: {place}/tls.key, caCertificates: /none.pem, "
        "cipherSuites: [RC4, ECDHE-ECDSA-AES256-GCM-SHA384]}"
    )
    async with edge(gateways(server(tls))) as made:
        assert (await made.ask(tls=trusting(shown))).status == 200


async def test_rejected_certificate_files_are_served_after_they_are_fixed(
    edge, authority, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("weft.control.push.unread_secrets._FIRST_SECONDS", 0.1)
    shown, renewed = authority.issue(HOST), Authority().issue(HOST)
    (tmp_path / "tls.crt").write_bytes(shown.certificate)
    (tmp_path / "tls.key").write_bytes(renewed.key)
    tls = f"{{mode: SIMPLE, serverCertificate: {tmp_path}/tls.crt, privateKey: {tmp_path}/tls.key}}"
    async with edge(gateways(server(tls))) as made:
        problems = made.made.plane.problems

        async def is_refused():
            return any("Envoy rejects Secret" in str(each) for each in problems())

        async def is_tried_thrice():
            return sum("KEY_VALUES_MISMATCH" in each.getMessage() for each in caplog.records) > 3

        await eventually(is_refused)
        assert "user 1337" in problems()[0].hint
        await eventually(is_tried_thrice)
        assert await made.ask(tls=trusting(shown)) is None
        (tmp_path / "tls.key").write_bytes(shown.key)
        await made.until(200, tls=trusting(shown))
        assert not await is_refused()
        for name, content in (("tls.key", renewed.key), ("tls.crt", renewed.certificate)):
            (tmp_path / f".{name}").write_bytes(content)
            (tmp_path / f".{name}").rename(tmp_path / name)
        await made.until(200, tls=trusting(renewed))  # by whichever name of the directory: it is watched


@proves(
    "Gateway",
    "spec.servers[].tls.minProtocolVersion",
    "spec.servers[].tls.maxProtocolVersion",
    "spec.servers[].tls.cipherSuites",
)
async def test_only_the_configured_tls_versions_and_ciphers_are_accepted(edge, authority):
    shown = authority.issue(HOST)
    two, three = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    text = gateways(
        server("{mode: SIMPLE, credentialName: shop, minProtocolVersion: TLSV1_3}", hosts="[three.example.com]"),
        server(
            "{mode: SIMPLE, credentialName: shop, maxProtocolVersion: TLSV1_2, cipherSuites: "
            "[ECDHE-ECDSA-AES256-GCM-SHA384]}",
            hosts="[two.example.com]",
            name="two",
        ),
    )
    async with edge(text + pair("shop", shown)) as made:

        async def speaks(host, **more):
            context = trusting(shown, **more)
            context.check_hostname = False
            try:
                async with asyncio.timeout(30):
                    _, writer = await asyncio.open_connection("127.0.0.1", made.port, ssl=context, server_hostname=host)
            except (ssl.SSLError, ConnectionError):
                return None
            found = writer.get_extra_info("ssl_object")
            writer.close()
            return found.version(), found.cipher()[0]

        assert (await speaks("three.example.com"))[0] == "TLSv1.3"
        assert await speaks("three.example.com", most=two) is None
        assert await speaks("two.example.com") == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")
        assert await speaks("two.example.com", least=three) is None


@proves("Gateway", "spec.servers[].tls.caCertCredentialName", "spec.servers[].tls.subjectAltNames")
@pytest.mark.parametrize("roots", ["beside", "own", "named"])
async def test_mode_mutual_accepts_only_client_certificates_of_the_trusted_ca_with_an_allowed_name(
    edge, authority, roots
):
    shown, partners = authority.issue(HOST), Authority()
    good, wrong, stranger = (
        partners.issue("partner.example.com"),
        partners.issue("other.example.com"),
        Authority().issue("partner.example.com"),
    )
    named = ", caCertCredentialName: partners" if roots == "named" else ""
    text = gateways(server(f"{{mode: MUTUAL, credentialName: shop{named}, subjectAltNames: [partner.example.com]}}"))
    match roots:
        case "beside":
            text += pair("shop", shown) + secret("shop-cacert", "Opaque", cacert=good.root)
        case "own":
            text += secret("shop", "Opaque", cert=shown.certificate, key=shown.key, cacert=good.root)
        case "named":
            text += pair("shop", shown) + secret("partners", "Opaque", ca_crt=good.root)
    async with edge(text) as made:
        found = await made.ask(tls=trusting(shown, shows=good))
        assert found.status == 200
        assert "partner.example.com" in found.header("x-forwarded-client-cert")
        assert await made.ask(tls=trusting(shown)) is None
        assert await made.ask(tls=trusting(shown, shows=wrong)) is None
        assert await made.ask(tls=trusting(shown, shows=stranger)) is None


async def test_each_server_trusts_the_ca_of_its_own_secret_and_not_of_one_with_a_similar_name(edge, authority):
    shown = authority.issue("*.example.com")
    beside, within = Authority().issue("partner.example.com"), Authority().issue("partner.example.com")
    by_default = server("{mode: MUTUAL, credentialName: shop}", hosts="[a.example.com]", name="a")
    by_name = server(
        "{mode: MUTUAL, credentialName: other, caCertCredentialName: shop}", hosts="[b.example.com]", name="b"
    )
    secrets = pair("shop", shown, ca_crt=within.root) + pair("other", shown)
    secrets += secret("shop-cacert", "Opaque", cacert=beside.root)
    async with edge(gateways(by_default, by_name) + secrets) as made:
        for host, trusted, other in (("a.example.com", beside, within), ("b.example.com", within, beside)):
            assert (await made.ask(host, tls=trusting(shown, shows=trusted))).status == 200
            assert await made.ask(host, tls=trusting(shown, shows=other)) is None


@pytest.mark.parametrize("name", ["a.admin.example.com", "a.admin.example.com.", "a.admin.example.com.:443"])
async def test_no_spelling_of_a_host_bypasses_a_stricter_server_with_a_wildcard(edge, authority, name):
    shown = authority.issue("*.example.com")
    wide = server("{mode: SIMPLE, credentialName: shop}", hosts='["*"]', name="wide")
    strict = server("{mode: MUTUAL, credentialName: shop}", hosts='["*.admin.example.com"]', name="strict")
    async with edge(gateways(wide, strict) + pair("shop", shown, ca_crt=Authority().issue("a.com").root)) as made:
        context = trusting(shown)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", made.port, ssl=context, server_hostname="shop.example.com"
        )
        writer.write(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"421"
        writer.close()


async def test_optional_mutual_accepts_no_certificate_and_rejects_an_invalid_one(edge, authority):
    shown, partner = authority.issue(HOST), Authority().issue("partner.example.com")
    text = gateways(server("{mode: OPTIONAL_MUTUAL, credentialName: shop}"))
    async with edge(text + pair("shop", shown, ca_crt=partner.root)) as made:
        assert (await made.ask(tls=trusting(shown, shows=partner))).status == 200
        claimed = (("x-forwarded-client-cert", 'Subject="CN=admin"'),)
        found = await made.ask(tls=trusting(shown), headers=claimed)
        assert found.status == 200 and found.header("x-forwarded-client-cert") is None
        assert await made.ask(tls=trusting(shown, shows=Authority().issue("partner.example.com"))) is None


@proves("Gateway", "spec.servers[].tls.verifyCertificateSpki", "spec.servers[].tls.verifyCertificateHash")
async def test_client_certificates_may_be_verified_by_digest(edge, authority):
    shown, partners = authority.issue(HOST), Authority()
    first, second = partners.issue("a.example.com"), partners.issue("a.example.com")
    leaf = x509.load_pem_x509_certificate(first.certificate)
    public = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    spki = base64.b64encode(hashlib.sha256(public).digest()).decode()
    for written in (
        f"verifyCertificateSpki: [{spki}]",
        f"verifyCertificateHash: [{leaf.fingerprint(hashes.SHA256()).hex()}]",
    ):
        text = gateways(server(f"{{mode: MUTUAL, credentialName: shop, {written}}}"))
        async with edge(text + pair("shop", shown, ca_crt=first.root)) as made:
            assert (await made.ask(tls=trusting(shown, shows=first))).status == 200
            assert await made.ask(tls=trusting(shown, shows=second)) is None


@proves("Gateway", "spec.servers[].tls.caCertificates", "spec.servers[].tls.caCrl")
async def test_only_client_certificates_of_the_ca_file_that_are_not_revoked_are_accepted(edge, authority, tmp_path):
    shown, partners = authority.issue(HOST), Authority()
    good, bad = partners.issue("a.example.com"), partners.issue("a.example.com")
    for name, content in (
        ("tls.crt", shown.certificate),
        ("tls.key", shown.key),
        ("ca.crt", good.root),
        ("ca.crl", partners.revoked(bad)),
    ):
        (tmp_path / name).write_bytes(content)
    files = (
        f"{{mode: MUTUAL, serverCertificate: {tmp_path}/tls.crt, privateKey: {tmp_path}/tls.key, "
        f"caCertificates: {tmp_path}/ca.crt, caCrl: {tmp_path}/ca.crl}}"
    )
    held = pair("shop", shown, ca_crt=good.root, ca_crl=partners.revoked(bad))
    for tls, secrets in ((files, ""), ("{mode: MUTUAL, credentialName: shop}", held)):
        async with edge(gateways(server(tls)) + secrets) as made:
            assert (await made.ask(tls=trusting(shown, shows=good))).status == 200
            assert await made.ask(tls=trusting(shown, shows=bad)) is None


@proves(
    "Gateway",
    "spec.servers[].tls.credentialNames",
    "spec.servers[].tls.tlsCertificates[].serverCertificate",
    "spec.servers[].tls.tlsCertificates[].privateKey",
)
async def test_clients_get_the_rsa_or_ecdsa_certificate_that_they_support(edge, authority, tmp_path):
    curve, rsa = authority.issue(HOST), authority.issue(HOST, rsa=True)
    for name, shown in (("a", curve), ("b", rsa)):
        (tmp_path / f"{name}.crt").write_bytes(shown.certificate)
        (tmp_path / f"{name}.key").write_bytes(shown.key)
    files = ", ".join(
        f"{{serverCertificate: {tmp_path}/{name}.crt, privateKey: {tmp_path}/{name}.key}}" for name in "ab"
    )
    for tls, secrets in (
        ("{mode: SIMPLE, credentialNames: [curve, rsa]}", pair("curve", curve) + pair("rsa", rsa)),
        (f"{{mode: SIMPLE, tlsCertificates: [{files}]}}", ""),
    ):
        async with edge(gateways(server(tls)) + secrets) as made:
            for suite in ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"):
                context = trusting(curve, most=ssl.TLSVersion.TLSv1_2)
                context.set_ciphers(suite)
                assert (await made.ask(tls=context)).status == 200, suite


async def test_a_server_with_mutual_tls_is_not_bypassed_by_another_sni(edge, authority):
    shown, partner = authority.issue("*.example.com"), Authority().issue("partner.example.com")
    text = gateways(
        server("{mode: SIMPLE, credentialName: shop}", hosts='["*.example.com"]', name="wide"),
        server("{mode: MUTUAL, credentialName: shop}", hosts="[safe.example.com]", name="safe"),
    )
    own = ROUTES.replace('"*"', "safe.example.com").replace("name: any", "name: safe")
    async with edge(text + own + pair("shop", shown, ca_crt=partner.root)) as made:
        assert (await made.ask("safe.example.com", tls=trusting(shown, shows=partner))).status == 200
        assert await made.ask("safe.example.com", tls=trusting(shown)) is None
        for host in ("safe.example.com", "SAFE.example.com", "safe.example.com:443", "safe.example.com."):
            assert (await made.ask(host, name="open.example.com", tls=trusting(shown))).status == 421, host
        assert (await made.ask("open.example.com", tls=trusting(shown))).status == 200


async def test_a_request_for_another_servers_host_gets_421(edge, authority):
    """A browser does so if the certificate of its connection is valid for both hosts."""
    shown = authority.issue("*.example.com")
    both = [
        server("{mode: SIMPLE, credentialName: shop}", hosts=f"[{name}.example.com]", name=name) for name in ("a", "b")
    ]
    async with edge(gateways(*both) + pair("shop", shown)) as made:
        assert (await made.ask("a.example.com", tls=trusting(shown))).status == 200
        assert (await made.ask("b.example.com", name="a.example.com", tls=trusting(shown))).status == 421
        assert (await made.ask("c.example.com", name="a.example.com", tls=trusting(shown))).status == 404


async def test_istio_mutual_uses_the_certificates_of_the_mesh(edge):
    async with edge(gateways(server("{mode: ISTIO_MUTUAL}"))) as made:
        mesh = made.made.authority
        client = mesh.issue("spiffe://cluster.local/ns/shop/sa/web")
        context = trusting(client, shows=client)
        context.check_hostname = False
        assert (await made.ask(tls=context)).status == 200
        foreign = Authority().issue("spiffe://cluster.local/ns/shop/sa/web")
        other = trusting(client, shows=foreign)
        other.check_hostname = False
        assert await made.ask(tls=other) is None


@proves("Gateway", "spec.servers[].port.name")
async def test_servers_with_named_ports_share_a_port_and_sni_selects_the_certificate(edge, authority):
    exact, wide = authority.issue("a.example.com"), Authority().issue("*.example.com")
    text = gateways(
        server("{mode: SIMPLE, credentialName: wide}", hosts='["*.example.com"]', name="wide"),
        server("{mode: SIMPLE, credentialName: exact}", hosts="[a.example.com]", name="exact"),
    )
    async with edge(text + pair("exact", exact) + pair("wide", wide)) as made:
        dump = await made.made.dump()
        assert all(f'"https.{made.port}.{name}.public.edge"' in dump for name in ("wide", "exact"))
        assert (await made.ask("a.example.com", tls=trusting(exact))).status == 200
        assert (await made.ask("b.example.com", tls=trusting(wide))).status == 200
        assert await made.ask("a.example.com", tls=trusting(wide)) is None
        assert await made.ask("example.net", name="example.net", tls=trusting(wide)) is None  # no server has this name
        # A connection for one name is not one for another that has its own certificate.
        assert (await made.ask("a.example.com", name="b.example.com", tls=trusting(wide))).status == 421
        context = trusting(exact, protocols=("h2", "http/1.1"))
        _, writer = await asyncio.open_connection("127.0.0.1", made.port, ssl=context, server_hostname="a.example.com")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()


async def test_no_private_key_appears_in_outputs_or_files(authority, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    first, second = authority.issue(HOST), authority.issue(HOST)
    port = free_port()
    text = gateways(server("{mode: SIMPLE, credentialName: shop}")) + ROUTES
    (tmp_path / "memory").mkdir(mode=0o700)
    async with gateway(
        (text + pair("shop", first)).replace("PORT", str(port)), listening=(port,), memory=Memory(tmp_path / "memory")
    ) as made:
        edge = Edge(made, port)
        edge.apply(pair("shop", second))
        await edge.until(503, tls=trusting(second))  # the destination of its route does not exist
        bad = pair("shop", first).replace(base64.b64encode(first.certificate).decode(), "AAAA")
        edge.apply(bad)
        told = [
            await made.dump(),
            str(made.plane.problems()),
            repr(made.plane.history.moments()),
            repr(made.plane.mesh.get(ObjectKey("Secret", "edge", "shop"))),
        ]
        pages = json.loads((await attach_debug(made.plane).answer("list")).body)
        assert len(pages) > 8
        for page in pages:
            for query in (
                {},
                {"proxyID": "ingress-0.edge", "include_eds": "true"},
                {"number": "0"},
                {"pod": "ingress-0.edge", "kind": "secret"},
            ):
                told.append((await attach_debug(made.plane).answer(page, query)).body.decode())
        await made.plane.close()
        told += [file.read_text(errors="replace") for file in (tmp_path / "memory").rglob("*") if file.is_file()]
        told += [record.getMessage() + str(record.exc_info or "") for record in caplog.records]
        assert any("kubernetes://shop" in each for each in told) and any('"Secret"' in each for each in told)
        for shown in (first, second):
            body = "".join(shown.key.decode().splitlines()[1:-1])
            whole = base64.b64encode(shown.key).decode()
            for each in told:
                assert body[:40] not in each and whole[60:120] not in each
