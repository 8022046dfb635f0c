"""TLS to servers outside the mesh, as such servers see it. SDS secrets come over the agent's socket instead of ADS; all
else is as in a mesh."""

import asyncio
import contextlib
import ssl

import pytest
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from tools.ports import free_port

from authority import Authority
from eventually import eventually
from fields import proves
from golden.render import compile_group
from model.builders import group, put
from translate.live import FRONTEND, running
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, TrafficPolicy
from weft.model.service import Protocol, Service, ServicePort, StaticEndpoint
from weft.translate.origination import secrets
from weft.translate.tls import SYSTEM_ROOTS, from_agent

SIMPLE, MUTUAL = ClientTlsMode.SIMPLE, ClientTlsMode.MUTUAL
HOST = "api.example.com"
REFUSED = (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)


class World:
    """A server outside the mesh, and files in a directory that a proxy can read."""

    def __init__(self, directory):
        self.directory, self.authority, self.seen, self.spoken = directory, Authority(), [], []
        self.show(self.authority.issue(HOST))
        self.write("client", self.authority.issue(FRONTEND))

    def write(self, name, identity):
        """As a volume does it: whole files, moved into place."""
        for suffix, content in (("crt", identity.certificate), ("key", identity.key), ("ca", identity.root)):
            fresh = self.directory / f".{name}.{suffix}"
            fresh.write_bytes(content)
            fresh.rename(self.directory / f"{name}.{suffix}")

    def show(self, identity, *, wants_certificate=False):
        self.write("server", identity)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.context.sni_callback = lambda _, name, __: self.seen.append(name)
        if wants_certificate:
            self.context.load_verify_locations(self.directory / "client.ca")
            self.context.verify_mode = ssl.CERT_REQUIRED

    def tls(self, mode=SIMPLE, **more):
        files = {"authorities": f"{self.directory}/server.ca"}
        if mode is MUTUAL:
            files |= {"certificate": f"{self.directory}/client.crt", "private_key": f"{self.directory}/client.key"}
        return ClientTls(mode, **(files | more))

    @contextlib.asynccontextmanager
    async def called(self, tls, protocol=Protocol.HTTP, **more):
        """Yields the port on which an application reaches the server."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self.context)
        port = free_port()
        mesh = Mesh()
        put(
            mesh,
            Service(
                HOST,
                "api",
                "shop",
                (ServicePort(80, str(protocol), protocol, server.sockets[0].getsockname()[1]),),
                ("127.0.0.1",),
                external=True,
                static_endpoints=(StaticEndpoint("127.0.0.1"),),
                **more,
            ),
            DestinationRule("api", "shop", HOST, TrafficPolicy(tls=tls)),
        )
        resources, _ = compile_group(mesh, group("frontend"))
        listener = next(each for each in resources.listeners if each.name.endswith("_80"))
        del listener.additional_addresses[:]
        listener.ClearField("bind_to_port")
        listener.address.socket_address.address, listener.address.socket_address.port_value = "127.0.0.1", port
        for cluster in resources.clusters:
            if cluster.name.endswith(HOST) and cluster.HasField("transport_socket"):
                _over_the_agents_socket(cluster)
        envoy = running(
            [listener],
            resources.clusters,
            routes=resources.routes,
            endpoints=resources.endpoints,
            listening=(port,),
            secrets=resources.secrets,
        )
        async with server, envoy:
            yield port

    async def _answer(self, reader, writer):
        with contextlib.suppress(*REFUSED):
            self.spoken.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            await reader.readuntil(b"\r\n\r\n")
            serial = ssl.DER_cert_to_PEM_cert(shown) if shown else "nobody"
            body = f"{len(serial)}:{serial[40:80]}".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        writer.close()


def _over_the_agents_socket(cluster):
    context = UpstreamTlsContext.FromString(cluster.transport_socket.typed_config.value)
    common = context.common_tls_context
    configs = list(common.tls_certificate_sds_secret_configs)
    if common.HasField("combined_validation_context"):
        configs.append(common.combined_validation_context.validation_context_sds_secret_config)
    for config in configs:
        assert config.sds_config.HasField("ads") and config.sds_config.initial_fetch_timeout.seconds
        config.sds_config.CopyFrom(from_agent())
    cluster.transport_socket.typed_config.Pack(context)


async def _ask(port, host=HOST):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = (await asyncio.wait_for(reader.read(), 30)).decode()
        writer.close()
    except REFUSED:
        return ""
    return answer


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tls.mode",
    "spec.trafficPolicy.tls.sni",
    "spec.trafficPolicy.tls.caCertificates",
)
async def test_plaintext_http_is_sent_over_tls_with_the_given_sni_to_a_server_verified_by_the_ca(world):
    async with world.called(world.tls()) as port:
        assert "200 OK" in await _ask(port)
    assert set(world.seen) == {HOST}


async def test_plaintext_tcp_of_the_application_becomes_tls(world):
    async with world.called(world.tls(), Protocol.TCP) as port:
        assert "200 OK" in await _ask(port)
    assert set(world.seen) == {HOST}


@pytest.mark.parametrize(
    ("protocol", "spoken"), [(Protocol.HTTP, "http/1.1"), (Protocol.GRPC, "h2"), (Protocol.TCP, None)]
)
async def test_the_offered_alpn_matches_the_protocol(world, protocol, spoken):
    async with world.called(world.tls(), protocol) as port:
        await _ask(port)
    assert set(world.spoken) == {spoken}


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tls.caCrl",
)
async def test_a_revoked_server_certificate_is_rejected(world):
    other = world.authority.issue(HOST)
    (world.directory / "crl.pem").write_bytes(world.authority.revoked(other))
    async with world.called(world.tls(revoked=f"{world.directory}/crl.pem")) as port:
        assert "200 OK" in await _ask(port)
    world.show(other)
    async with world.called(world.tls(revoked=f"{world.directory}/crl.pem")) as port:
        assert "200 OK" not in await _ask(port)


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP, Protocol.UNDECLARED])
async def test_a_certificate_for_another_name_is_refused(world, protocol):
    world.show(world.authority.issue("evil.example.com"))
    async with world.called(world.tls(), protocol) as port:
        assert "200 OK" not in await _ask(port)


async def test_the_requested_sni_is_also_verified(world):
    async with world.called(world.tls(server_name="other.example.com")) as port:
        assert "200 OK" not in await _ask(port)
    world.show(world.authority.issue("other.example.com"))
    async with world.called(world.tls(server_name="other.example.com")) as port:
        assert "200 OK" in await _ask(port)
    assert world.seen[-1] == "other.example.com"


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tls.subjectAltNames",
)
async def test_subject_alt_names_of_a_rule_take_precedence_over_those_of_the_service_entry_and_the_sni(world):
    world.show(world.authority.issue("spiffe://example.com/api"))
    async with world.called(world.tls(subject_alt_names=("spiffe://example.com/api",))) as port:
        assert "200 OK" in await _ask(port)
    async with world.called(world.tls(), subject_alt_names=("spiffe://example.com/api",)) as port:
        assert "200 OK" in await _ask(port)
    async with world.called(
        world.tls(subject_alt_names=("spiffe://example.com/other",)), subject_alt_names=("spiffe://example.com/api",)
    ) as port:
        assert "200 OK" not in await _ask(port)


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tls.insecureSkipVerify",
)
async def test_a_server_certificate_of_another_ca_is_rejected_unless_verification_is_off(world):
    world.show(Authority().issue("anything.example.com"))
    world.write("server", world.authority.issue(HOST))  # so that the trusted root is not the server's
    async with world.called(world.tls()) as port:
        assert "200 OK" not in await _ask(port)
    async with world.called(ClientTls(SIMPLE, verify=False)) as port:
        assert "200 OK" in await _ask(port)


async def test_by_default_only_the_systems_cas_are_trusted(world):
    async with world.called(ClientTls(SIMPLE)) as port:
        assert "200 OK" not in await _ask(port)
    (roots,) = secrets("c", ClientTls(SIMPLE), ())
    assert Secret.FromString(roots.body).validation_context.trusted_ca.filename == SYSTEM_ROOTS


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tls.clientCertificate",
    "spec.trafficPolicy.tls.privateKey",
)
async def test_the_client_certificate_and_its_key_are_used_and_reloaded(world):
    world.show(world.authority.issue(HOST), wants_certificate=True)
    async with world.called(world.tls(MUTUAL)) as port:
        first = await _ask(port)
        assert "200 OK" in first
        world.write("client", world.authority.issue(FRONTEND))
        await eventually(lambda: _ask(port), lambda value: value != first)
        assert "200 OK" in await _ask(port)
    async with world.called(world.tls(SIMPLE)) as port:
        assert "200 OK" not in await _ask(port)


async def test_a_missing_ca_file_trusts_no_server_and_does_not_block_the_proxys_start(world):
    async with world.called(world.tls(authorities="/nowhere/ca.pem")) as port:
        assert " 503 " in await _ask(port)


async def test_a_rejected_rule_calls_no_server(world):
    async with world.called(ClientTls(ClientTlsMode.CLOSED)) as port:
        assert " 503 " in await _ask(port)
    assert world.seen == []


def test_secrets_contain_paths_and_never_a_key():
    pair, roots = secrets(
        "c",
        ClientTls(MUTUAL, certificate="/a/c.pem", private_key="/a/k.pem", authorities="/b/ca", revoked="/b/crl"),
        (),
    )
    held = Secret.FromString(pair.body).tls_certificate
    assert (held.certificate_chain.filename, held.private_key.filename) == ("/a/c.pem", "/a/k.pem")
    assert held.watched_directory.path == "/a"
    context = Secret.FromString(roots.body).validation_context
    assert (context.trusted_ca.filename, context.crl.filename, context.watched_directory.path) == (
        "/b/ca",
        "/b/crl",
        "/b",
    )
    assert (pair.name, roots.name) == ("c/certificate", "c/roots")
