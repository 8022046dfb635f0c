"""Many policy sets in front of one real Envoy: each set guards a workload at a separate loopback address, with HTTP on
port 8080 and TCP on port 7000. The result of translation is used unchanged, except for keys in its TLS contexts and
a token check before the policies. Requests are raw bytes, so that no client library normalizes them."""

import asyncio
import contextlib
import functools
import json
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from google.protobuf.json_format import ParseDict
from tools.ports import free_port

from authority import Authority
from eventually import eventually
from golden.render import compile_group
from listening import until_listening
from model.builders import group, put
from weft.api.parse import parse
from weft.envoy import binary
from weft.envoy.validate import bootstrap
from weft.files.documents import read_documents
from weft.mesh.mesh import Mesh
from weft.model.access_log import Encoding, FileLog
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.names import labels_of
from weft.model.service import Protocol, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import IngressListener, Sidecar

HTTP_PORT, TCP_PORT = 8080, 7000
_HOSTS = 200  # of a block of addresses
ISSUER, OTHER_ISSUER = "https://login.example.com", "issuer.example"
_LOG = {
    "case": "%REQ(X-CASE)%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "ended": "%CONNECTION_TERMINATION_DETAILS%",
    "address": "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
    "rbac": "%DYNAMIC_METADATA(envoy.filters.http.rbac)%",
    "network": "%DYNAMIC_METADATA(envoy.filters.network.rbac)%",
    "hint": "%DYNAMIC_METADATA(envoy.common:access_log_hint)%",
}


@dataclass
class Request:
    """`principal`: the SPIFFE id of a client certificate; "": plaintext; `server_name` goes with TLS only."""

    method: str = "GET"
    path: str = "/"
    host: str = "orders"
    headers: list[tuple[str, str]] = field(default_factory=list)
    principal: str = ""
    source: str = "127.0.0.1"
    server_name: str = ""
    claims: dict | None = None
    tcp: bool = False
    body: bytes = b""


@dataclass
class Answer:
    status: int  # of TCP: 200 if the bytes came back, 403 if the connection was closed instead
    head: str = ""
    body: str = ""


class Rig:
    def __init__(self, process, log, places):
        self.process, self._log, self._places = process, log, places

    def address(self, place):
        return self._places[place]

    async def send(self, place, request, case=""):
        return await (_tcp if request.tcp else _http)(self._places[place], request, case)

    async def logged(self, count):
        """Every line of the access log, once there are so many."""

        def lines():
            return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

        return await eventually(lines, lambda lines: len(lines) >= count, what=f"{count} lines in the access log")


@contextlib.asynccontextmanager
async def rig(policy_sets, settings=None, services=(), tcp_app=None):
    """`policy_sets`: of each workload the YAML of its policies, or the values themselves. A workload is `app: orders`
    in the namespace `shop`."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "access.log")
        async with _app(_answer_http) as http_port, _app(tcp_app or _echo) as tcp_port:
            listeners, clusters, endpoints, places = [], {}, {}, []
            for number, policies in enumerate(policy_sets):
                if number % _HOSTS == 0:
                    block = free_port()  # no other test gets this port, so no other Envoy listens there
                address = f"127.{block // 256}.{block % 256}.{number % _HOSTS + 1}"
                made = _translated(policies, settings or Settings(), services, log, http_port, tcp_port)
                listener = next(each for each in made.listeners if each.name == "virtualInbound")
                listeners.append(_at(listener, address))
                for cluster in made.clusters:
                    del cluster.transport_socket_matches[:]  # authorizers are not in the mesh here
                    clusters[cluster.name] = cluster
                endpoints |= {each.cluster_name: each for each in made.endpoints}
                places.append(address)
            document = bootstrap(listeners=listeners, clusters=clusters.values(), endpoints=endpoints.values())
            file = Path(directory, "bootstrap.pb")
            file.write_bytes(document.SerializeToString())
            process = await asyncio.create_subprocess_exec(
                *(str(binary.find()), "--config-path", str(file), "--disable-hot-restart", "--concurrency", "1"),
                *("--log-level", "warning", "--file-flush-interval-msec", "20"),
            )
            try:
                await until_listening(places[-1], HTTP_PORT, process)
                yield Rig(process, log, places)
            finally:
                process.terminate()
                await process.wait()


def read_policies(text):
    values = []
    for document in read_documents(text.encode(), "policies.yaml").documents:
        parsed = parse(document)
        assert not [str(problem) for problem in parsed.problems if problem.severity == "error"]
        values += parsed.values
    return values


def _translated(policies, settings, services, log, http_port, tcp_port):
    mesh = Mesh(msgspec.structs.replace(settings, logs=(FileLog(str(log), Encoding.JSON, json.dumps(_LOG)),)))
    ingress = (
        IngressListener(ServicePort(HTTP_PORT, protocol=Protocol.HTTP), f"127.0.0.1:{http_port}"),
        IngressListener(ServicePort(TCP_PORT, protocol=Protocol.TCP), f"127.0.0.1:{tcp_port}"),
    )
    put(mesh, Sidecar("orders", "shop", labels_of({"app": "orders"}), ingress=ingress), *services)
    values = read_policies(policies) if isinstance(policies, str) else policies
    put(mesh, *(value for value in values if isinstance(value, AuthorizationPolicy)))
    return compile_group(mesh, group("orders"))[0]


def _at(listener, address):
    """Bound to loopback, with TLS beside plaintext, and with tokens checked before policies."""
    listener.name = f"{listener.name}-{address}"
    listener.ClearField("bind_to_port")
    del listener.additional_addresses[:]
    listener.address.socket_address.address = address
    listener.address.socket_address.port_value = HTTP_PORT
    second = listener.additional_addresses.add().address.socket_address
    second.address, second.port_value = address, TCP_PORT
    kept = [
        chain
        for chain in listener.filter_chains
        if chain.filter_chain_match.destination_port.value in (HTTP_PORT, TCP_PORT)
    ]
    del listener.filter_chains[:]
    for chain in kept:
        for network_filter in chain.filters:
            if network_filter.typed_config.Is(HttpConnectionManager.DESCRIPTOR):
                manager = HttpConnectionManager.FromString(network_filter.typed_config.value)
                manager.http_filters.insert(0, _token_check())
                network_filter.typed_config.Pack(manager)
        if chain.HasField("transport_socket"):
            chain.transport_socket.typed_config.Pack(_with_keys(chain.transport_socket.typed_config.value))
        listener.filter_chains.append(chain)
    return listener


@functools.cache
def _with_keys(written):
    """The mesh's TLS context with inline keys instead of SDS. It accepts certificates of every trust domain: these
    tests check policies, others check the handshake."""
    context = DownstreamTlsContext.FromString(written)
    common = context.common_tls_context
    del common.tls_certificate_sds_secret_configs[:]
    certificate = common.tls_certificates.add()
    own = _credentials("spiffe://cluster.local/ns/shop/sa/orders")
    certificate.certificate_chain.inline_bytes = own.certificate
    certificate.private_key.inline_bytes = own.key
    common.ClearField("combined_validation_context")
    common.validation_context.trusted_ca.inline_bytes = own.root
    return context


def _token_check():
    config = {
        "providers": {
            name: {
                "issuer": name,
                "local_jwks": {"inline_string": _keys()[1]},
                "payload_in_metadata": "payload",
                "forward": True,
            }
            for name in (ISSUER, OTHER_ISSUER)
        },
        "rules": [
            {
                "match": {"prefix": "/"},
                "requires": {
                    "requires_any": {
                        "requirements": [
                            {"provider_name": ISSUER},
                            {"provider_name": OTHER_ISSUER},
                            {"allow_missing": {}},
                        ]
                    }
                },
            }
        ],
    }
    result = HttpFilter(name="envoy.filters.http.jwt_authn")
    result.typed_config.Pack(ParseDict(config, JwtAuthentication()))
    return result


@functools.cache
def _keys():
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return key, json.dumps({"keys": [public | {"kid": "one", "alg": "ES256", "use": "sig"}]})


def token(claims):
    lasting = {"exp": int(time.time()) + 3600}
    return jwt.encode(lasting | claims, _keys()[0], algorithm="ES256", headers={"kid": "one"})


@functools.cache
def _authority():
    return Authority()


@functools.cache
def _credentials(identity):
    return _authority().issue(identity)


@functools.cache
def _client_tls(identity, protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    with tempfile.NamedTemporaryFile() as file:
        own = _credentials(identity)
        file.write(own.certificate + own.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


async def _connect(address, port, request):
    tls = {}
    if request.principal:
        tls = {
            "ssl": _client_tls(request.principal, "istio" if request.tcp else "istio-http/1.1"),
            "server_hostname": request.server_name or None,
        }
        if not request.server_name:
            tls["server_hostname"] = ""
    return await asyncio.open_connection(address, port, local_addr=(request.source, 0), **tls)


async def _http(address, request, case):
    reader, writer = await _connect(address, HTTP_PORT, request)
    headers = [("Host", request.host), ("Connection", "close"), ("X-Case", case), *request.headers]
    if request.claims is not None:
        headers.append(("Authorization", f"Bearer {token(request.claims)}"))
    if request.body:
        headers.append(("Content-Length", str(len(request.body))))
    lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body)
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 15)).decode("latin-1")
    length = 0 if request.method == "HEAD" else _length(head)
    body = (await asyncio.wait_for(reader.readexactly(length), 15)).decode("latin-1")
    writer.close()
    return Answer(int(head.split()[1]), head, body)


def _length(head):
    lines = (line.lower() for line in head.split("\r\n"))
    return next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)


async def _tcp(address, request, case):
    reader, writer = await _connect(address, TCP_PORT, request)
    said = b""
    with contextlib.suppress(ConnectionError):
        writer.write(b"ping\n")
        said = await asyncio.wait_for(reader.readline(), 15)
    writer.close()
    return Answer(200 if said == b"ping\n" else 403)


async def _answer_http(reader, writer):
    """Responds with the path and headers that it received."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head.decode("latin-1")))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(head), head))
            await writer.drain()
    writer.close()


async def _echo(reader, writer):
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def _app(handle):
    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1000)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
