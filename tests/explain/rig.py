"""Generated meshes in real Envoys, next to what `explain` says of them: two callers' proxies with everything that they
would be sent, and one proxy that stands for all the workloads, each at an address of its own on loopback.

What translation makes is taken as it is. Instead of iptables, a PROXY header in front of each connection tells a caller's
proxy its original destination. Requests are bytes, so that nobody tidies them up on the way.
"""

import asyncio
import contextlib
import functools
import json
import os
import re
import tempfile
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import jwt
import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.listener.proxy_protocol.v3.proxy_protocol_pb2 import ProxyProtocol
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from authority import Authority
from golden.render import Resources as Received
from golden.render import compile_group
from model.builders import group, put
from translate import tokens
from translate.live import agent, free_port
from weft.api.parse import parse
from weft.envoy import binary
from weft.envoy.validate import bootstrap
from weft.explain.explain import explain
from weft.explain.jwt import read_token
from weft.explain.request import Request, Speaks, Token
from weft.explain.world import Resources, Workload
from weft.files.documents import read_documents
from weft.model.access_log import Encoding, FileLog
from weft.model.instance import Instance
from weft.model.mesh import Mesh
from weft.model.names import labels_of, service_host
from weft.model.proxy import SDS_CLUSTER
from weft.model.service import Protocol, Service, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import IngressListener, Sidecar
from weft.translate.service import base
from weft.translate.view import group_view
from weft.xds.types import CLUSTER

HTTP_PORT, TCP_PORT, OPEN_PORT = 8080, 7000, 9000  # the last is undeclared
_NETWORK = f"127.{16 + os.getpid() % 200}"  # of its own, so that runs beside each other do not meet
PODS = f"{_NETWORK}.0.0/17"
PLAIN = f"{_NETWORK}.255.1"  # a workload without a proxy, behind every service's subset v2 and behind no service at all
NOBODY = f"{_NETWORK}.255.2"  # where nothing listens
CALLERS = {"frontend": "shop", "batch": "jobs"}
ISSUERS = (tokens.ISSUER, tokens.PARTNER)
KEYS = tokens.key_set(rsa=tokens.RSA_KEY)
_LOG = {
    "case": "%REQ(X-CASE)%",
    "route": "%ROUTE_NAME%",
    "cluster": "%UPSTREAM_CLUSTER_RAW%",
    "host": "%UPSTREAM_HOST%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
}


@dataclass
class Asked:
    """One request of a case. `to`: "service", "pod" (its own address), "plain", or "nobody"."""

    caller: str = "frontend"  # or "legacy", which has no proxy
    to: str = "service"
    port: int = 80
    method: str = "GET"
    path: str = "/"
    host: str = ""  # of the service, unless said
    headers: list = field(default_factory=list)
    token: dict | None = None
    speaks: Speaks = Speaks.HTTP


@dataclass
class Case:
    """A service's documents, written for the name SERVICE, and what is asked of it."""

    documents: list
    asked: list
    account: str = "orders"  # which the workload should have; the proxy that answers is `orders`


@dataclass
class Answer:
    status: int = 0  # 0: closed without an answer; of bytes 200 if they came back
    location: str = ""
    app: list | None = None  # the lines of the request that the application saw
    logged: dict = field(default_factory=dict)
    server_logged: dict = field(default_factory=dict)


@dataclass
class Told:
    case: Case
    asked: Asked
    request: Request
    explanation: object
    answer: Answer
    disagreement: str = ""


class RigWorld:
    def __init__(self):
        self.by_name, self.by_address, self.names = {}, {}, {}

    def add(self, workload):
        self.by_name[workload.name] = workload
        for address in workload.addresses:
            self.by_address[address] = workload

    def workload(self, name):
        return self.by_name.get(name)

    def at(self, address):
        return self.by_address.get(address)

    def resolve(self, host, caller):
        return self.names.get(host, ())

    def intercepts(self, workload, address, port, *, inbound):
        return True


# However slow the machine: what a connection speaks is found out, and who is there is reached.
_PATIENT = Settings(detection_timeout=timedelta(minutes=1), connect_timeout=timedelta(minutes=1))


async def compare(cases, settings=_PATIENT):
    """What Envoy did with every request, and what `explain` had said of it."""
    async with _app() as app:
        batch = _Batch(cases, settings, app)
        async with batch.running():
            return await batch.ask_all()


class _Batch:
    def __init__(self, cases, settings, app):
        self.cases, self.app = cases, app
        self.world, self.authority = RigWorld(), _authority()
        self.refused = []  # documents that weft itself does not take
        self.mesh = self._mesh(settings)
        self.callers = {name: compile_group(self.mesh, group(name, ns), judge=False)[0] for name, ns in CALLERS.items()}
        self.servers = [_received(self.mesh, group(f"s{number}")) for number in range(len(cases))]
        for name, namespace in CALLERS.items():
            identity = f"spiffe://cluster.local/ns/{namespace}/sa/{name}"
            self.world.add(Workload(name, ("127.0.0.1",), identity, _resources(self.callers[name])))
        orders = "spiffe://cluster.local/ns/shop/sa/orders"
        for number, made in enumerate(self.servers):
            self.world.add(Workload(f"s{number}-0", (_pod(number),), orders, _resources(made)))
        self.world.add(Workload("legacy", ("127.0.0.1",)))
        self.world.add(Workload("plain", (PLAIN,)))
        self.world.add(Workload("nobody", (NOBODY,), ports=frozenset()))

    def _mesh(self, settings):
        log = FileLog("access.log", Encoding.JSON, json.dumps(_LOG))
        mesh = Mesh(msgspec.structs.replace(settings, logs=(log,)))
        for number, case in enumerate(self.cases):
            name = f"s{number}"
            ingress = tuple(
                IngressListener(ServicePort(port, protocol=protocol), f"127.0.0.1:{self.app[spoken]}")
                for port, protocol, spoken in (
                    (HTTP_PORT, Protocol.HTTP, "http"),
                    (TCP_PORT, Protocol.TCP, "tcp"),
                    (OPEN_PORT, Protocol.UNDECLARED, "http"),
                )
            )
            put(
                mesh,
                Service(
                    host=service_host(name, "shop", "cluster.local"),
                    name=name,
                    namespace="shop",
                    ports=(
                        ServicePort(80, "http", Protocol.HTTP, HTTP_PORT),
                        ServicePort(TCP_PORT, "tcp", Protocol.TCP, TCP_PORT),
                        ServicePort(OPEN_PORT, "open", Protocol.UNDECLARED, OPEN_PORT),
                    ),
                    selector=labels_of({"app": name}),
                    addresses=(_virtual(number),),
                ),
                _instance(name, 0, _pod(number), "v1", meshed=True, service_account=case.account),
                _instance(name, 1, PLAIN, "v2"),
                Sidecar(name, "shop", labels_of({"app": name}), ingress=ingress),
            )
            for document in case.documents:
                text = json.dumps(document).replace("SERVICE", name)  # read faster than YAML, and here no line matters
                (read,) = read_documents(text.encode(), f"{name}.json").documents
                parsed = parse(read)
                self.refused += [str(each) for each in parsed.problems if each.severity == "error"]
                mesh.apply(read.key, parsed.values)
        return mesh

    @contextlib.asynccontextmanager
    async def running(self):
        async with contextlib.AsyncExitStack() as stack:
            self.logs, self.ports = {}, {}
            clusters, endpoints = {}, {}
            for made in self.servers:
                clusters |= {each.name: each for each in made.clusters}
                endpoints |= {each.cluster_name: each for each in made.endpoints}
            listeners = [_at_pod(made, _pod(number)) for number, made in enumerate(self.servers)]
            document = bootstrap(listeners=listeners, clusters=clusters.values(), endpoints=endpoints.values())
            places = [(_pod(len(self.cases) - 1), HTTP_PORT)]
            identity = "spiffe://cluster.local/ns/shop/sa/orders"
            self.logs["server"] = await stack.enter_async_context(_envoy(document, self._issued(identity), places))
            for name, namespace in CALLERS.items():
                port = self.ports[name] = free_port()
                made = self.callers[name]
                document = bootstrap(
                    listeners=[_intercepting(each, port) for each in made.listeners if each.name != "virtualInbound"],
                    clusters=made.clusters,
                    routes=made.routes,
                    endpoints=made.endpoints,
                )
                issued = self._issued(f"spiffe://cluster.local/ns/{namespace}/sa/{name}")
                self.logs[name] = await stack.enter_async_context(_envoy(document, issued, [("127.0.0.1", port)]))
            yield

    def _issued(self, identity):
        return _credentials(identity)

    async def ask_all(self):
        work = [(number, case, asked) for number, case in enumerate(self.cases) for asked in case.asked]
        told, queue = [None] * len(work), list(enumerate(work))
        queue.reverse()

        async def ask():
            own = {}
            while queue:
                index, (number, case, asked) = queue.pop()
                told[index] = await self._ask(index, number, case, asked, own)
            for _, writer in own.values():
                writer.close()

        await asyncio.gather(*(ask() for _ in range(16)))
        answered = {str(index): each for index, each in enumerate(told) if each.answer.status and each.request.is_http}
        for name in CALLERS:
            proxied = {case for case, each in answered.items() if each.asked.caller == name and _is_routed(each)}
            for case, line in (await _lines(self.logs[name], proxied)).items():
                told[int(case)].answer.logged = line
        reached = {case for case, each in answered.items() if _reached_a_proxy(each)}
        for case, line in (await _lines(self.logs["server"], reached)).items():
            told[int(case)].answer.server_logged = line
        for each in told:
            each.disagreement = disagreement(each)
        assert not self.refused, self.refused
        return told

    async def _ask(self, index, number, case, asked, own):
        host = asked.host.replace("SERVICE", f"s{number}") or service_host(f"s{number}", "shop", "cluster.local")
        address = {"service": _virtual(number), "pod": _pod(number), "plain": PLAIN, "nobody": NOBODY}[asked.to]
        headers = [(name, value) for name, value in asked.headers]
        path, known = asked.path, ()
        if asked.token is not None:
            token = made_token(asked.token)
            known = (token,)
            where = asked.token.get("where", "header")
            if where == "param":
                path += ("&" if "?" in path else "?") + f"access_token={token.text}"
            else:
                headers.append(("Authorization", f"Bearer {token.text}") if where == "header" else (where, token.text))
        headers.append(("X-Case", str(index)))
        request = Request(
            host=host,
            port=asked.port,
            method=asked.method,
            path=path,
            headers=tuple(headers),
            caller=asked.caller,
            address=address,
            speaks=asked.speaks,
            tokens=known,
            now=int(time.time()),
        )
        said = explain(request, self.world)
        answer = await self._send(request, own)
        return Told(case, asked, request, said, answer)

    async def _send(self, request, own):
        direct = request.caller == "legacy"
        key = (request.caller, request.address, request.port)
        for attempt in (1, 2):  # a connection that was kept may have been closed meanwhile
            fresh = key not in own or request.speaks is Speaks.BYTES
            try:
                reader, writer = own.pop(key) if not fresh else await self._connect(request, direct)
                send = _bytes if request.speaks is Speaks.BYTES else _http
                answer = await asyncio.wait_for(send(reader, writer, request), 20)
            except TimeoutError:
                writer.close()
                return Answer(-1)  # neither answered nor closed
            except (ConnectionError, asyncio.IncompleteReadError):
                if fresh or attempt == 2:
                    return Answer()
                continue
            if answer.status and request.speaks is Speaks.HTTP:
                own[key] = (reader, writer)
            else:
                writer.close()
            return answer
        return Answer()

    async def _connect(self, request, direct):
        if direct:
            return await asyncio.open_connection(request.address, request.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[request.caller])
        writer.write(f"PROXY TCP4 127.0.0.1 {request.address} 1234 {request.port}\r\n".encode())
        return reader, writer


def disagreement(told):
    """What is different; "" if one of the outcomes is what happened."""
    found = [_difference(outcome, told) for outcome in told.explanation.outcomes]
    return "" if "" in found else "; or ".join(found)


def _difference(outcome, told):
    verdict, answer, asked = outcome.verdict, told.answer, told.asked
    proxied = asked.caller != "legacy" and asked.speaks is Speaks.HTTP
    said = []

    def same(what, expected, actual):
        if expected != actual:
            said.append(f"{what}: {expected!r} was said, {actual!r} it was")

    if verdict.kind == "unknown":
        return f"unknown: {verdict.why}"
    if verdict.kind in ("delivered", "passed on"):
        same("reached", True, answer.app is not None)
        if answer.app and asked.speaks is Speaks.HTTP:
            same("head", _head(verdict), _app_head(answer.app))
            same("headers", _compared(verdict.headers), _compared(_app_headers(answer.app)))
    else:
        same("reached", False, answer.app is not None)
        same("status", verdict.status, answer.status)
        same("location", verdict.location, answer.location)
    if proxied and answer.logged:
        same("route", verdict.route, _dash(answer.logged["route"]))
        if verdict.cluster and "NC" not in verdict.flags:  # Envoy does not log the name of a cluster that is not there
            same("cluster", verdict.cluster, _dash(answer.logged["cluster"]))
        if verdict.endpoint and verdict.kind in ("delivered", "denied"):
            same("endpoint", verdict.endpoint, answer.logged["host"])
        if verdict.kind in ("answered", "failed") and outcome.steps[-1].proxy == asked.caller:
            if verdict.flags:
                same("flags", verdict.flags, _dash(answer.logged["flags"]))
            if verdict.detail and verdict.kind == "answered":
                same("detail", verdict.detail, answer.logged["details"])
    if verdict.kind == "denied":
        same("detail", verdict.detail, (answer.server_logged or {}).get("details"))
    return "; ".join(said)


def _dash(text):
    return "" if text in (None, "-") else text


def _head(verdict):
    return verdict.method, verdict.path, verdict.host


def _app_head(lines):
    method, path, _ = lines[0].split(" ", 2)
    hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
    return method, path, hosts[0]


def _app_headers(lines):
    return [(line.partition(":")[0].strip(), line.partition(":")[2].strip()) for line in lines[1:] if line]


_OWN = re.compile(
    r"x-envoy-(?!original-path).*|x-request-id|x-forwarded-proto|x-forwarded-client-cert|content-length|host|transfer-encoding|connection"
)


def _compared(headers):
    return sorted((name.lower(), value) for name, value in headers if not _OWN.fullmatch(name.lower()))


def made_token(wanted):
    """`forged`, `malformed`, or claims to be signed."""
    claims = {name: value for name, value in wanted.items() if name not in ("where", "forged", "malformed", "late")}
    claims.setdefault("exp", int(time.time()) + (-600 if wanted.get("late") else 600))
    if wanted.get("malformed"):
        return read_token(wanted["malformed"])
    text = _signed(
        json.dumps({"iss": tokens.ISSUER, "sub": "alice", **claims}, sort_keys=True), bool(wanted.get("forged"))
    )
    return Token(text, {"iss": tokens.ISSUER, "sub": "alice", **claims}, verified=not wanted.get("forged"))


@functools.lru_cache(maxsize=4096)
def _signed(claims, forged):
    key = tokens.OTHER_KEY if forged else tokens.RSA_KEY
    return jwt.api_jws.encode(claims.encode(), key, "RS256", headers={"typ": "JWT", "kid": "rsa"})


def _received(mesh, owner):
    """What a workload's proxy has without knowing any service: nothing else is asked of it here."""
    made = base(group_view(mesh, owner))
    return Received(
        clusters=[Cluster.FromString(each.body) for each in made.clusters if each.type_url == CLUSTER],
        listeners=[Listener.FromString(each.body) for each in made.listeners],
    )


def _resources(made):
    return Resources(made.listeners, made.routes, made.clusters, made.endpoints)


def _instance(name, number, address, version, **more):
    return Instance(f"{name}-{number}", "shop", (address,), labels_of({"app": name, "version": version}), **more)


def _pod(number):
    return f"{_NETWORK}.{number // 200}.{number % 200 + 1}"


def _virtual(number):
    return f"10.96.{number // 200}.{number % 200 + 1}"


def _at_pod(made, address):
    listener = type(made.listeners[0])()
    listener.CopyFrom(next(each for each in made.listeners if each.name == "virtualInbound"))
    listener.name = f"{listener.name}-{address}"
    del listener.additional_addresses[:]
    listener.address.socket_address.address = address
    listener.address.socket_address.port_value = HTTP_PORT
    for port in (TCP_PORT, OPEN_PORT):
        more = listener.additional_addresses.add().address.socket_address
        more.address, more.port_value = address, port
    return listener


def _intercepting(listener, port):
    if listener.name != "virtualOutbound":
        return listener
    result = type(listener)()
    result.CopyFrom(listener)
    del result.additional_addresses[:]
    result.address.socket_address.address = "127.0.0.1"
    result.address.socket_address.port_value = port
    told = result.listener_filters.add(name="envoy.filters.listener.proxy_protocol")
    told.typed_config.Pack(ProxyProtocol())
    return result


@functools.cache
def _authority():
    return Authority()


@functools.cache
def _credentials(identity):
    return _authority().issue(identity)


@contextlib.asynccontextmanager
async def _envoy(document, identity, places):
    """Yields the path of its access log."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bootstrap.pb")
        async with agent(f"{directory}/sds", identity, {}):
            for cluster in document.static_resources.clusters:
                if cluster.name == SDS_CLUSTER:
                    del cluster.load_assignment.endpoints[:]
                    place = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
                    place.address.pipe.path = f"{directory}/sds"
                    options = HttpProtocolOptions()
                    options.explicit_http_config.http2_protocol_options.SetInParent()
                    cluster.typed_extension_protocol_options[HttpProtocolOptions.DESCRIPTOR.full_name].Pack(options)
            file.write_bytes(document.SerializeToString())
            process = await asyncio.create_subprocess_exec(
                *(str(binary.find()), "--config-path", str(file), "--disable-hot-restart", "--concurrency", "1"),
                *("--log-level", "error", "--file-flush-interval-msec", "20"),
                cwd=directory,
            )
            try:
                for place in places:
                    await _listening(place, process)
                yield Path(directory, "access.log")
            finally:
                process.terminate()
                await process.wait()


async def _listening(place, process):
    while True:
        assert process.returncode is None, "Envoy did not start"
        try:
            _, writer = await asyncio.open_connection(*place)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


def _is_routed(told):
    """Whether the caller's proxy read its HTTP; elsewhere it passes on bytes, and logs no case."""
    return any(step.stage == "route" and step.proxy == told.asked.caller for step in told.explanation.outcomes[0].steps)


def _reached_a_proxy(told):
    """Whether the workload's proxy logs its case: not that of a request which its codec could not read."""
    if any(outcome.verdict.detail == "http1.codec_error" for outcome in told.explanation.outcomes):
        return False
    if told.asked.caller == "legacy":
        return told.asked.to == "pod"
    return (told.answer.logged.get("host") or "").startswith(f"{_NETWORK}.") and not told.answer.logged[
        "host"
    ].startswith(PLAIN)


async def _lines(log, wanted):
    """The access log by case, once all of these are in it."""
    for _ in range(250):
        text = log.read_text() if log.exists() else ""
        found = {}
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                found[str(entry["case"])] = entry
        if wanted <= found.keys():
            break
        await asyncio.sleep(0.02)
    return {case: line for case, line in found.items() if case.isdigit()}


async def _http(reader, writer, request):
    lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {request.host}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    headers = {}
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), value.strip())
    body = b""
    if request.method != "HEAD" and (length := int(headers.get("content-length", 0))):
        body = await reader.readexactly(length)
    app = json.loads(headers["x-app"]) if "x-app" in headers else None
    del body
    return Answer(int(head.split()[1]), headers.get("location", ""), app)


async def _bytes(reader, writer, request):
    writer.write(b"ping\n")
    said = await reader.readline()
    return Answer(200, app=["ping"]) if said == b"ping\n" else Answer()


@contextlib.asynccontextmanager
async def _app():
    """HTTP that says in a header what it got, and bytes that come back, on loopback and at the plain workload's."""
    async with contextlib.AsyncExitStack() as stack:
        ports = {}
        for spoken, handle in (("http", _answer_http), ("tcp", _echo)):
            server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1000)
            stack.callback(server.close)
            ports[spoken] = server.sockets[0].getsockname()[1]
        for port, handle in (
            (80, _answer_http),
            (HTTP_PORT, _answer_http),
            (OPEN_PORT, _answer_http),
            (TCP_PORT, _echo),
        ):
            server = await asyncio.start_server(handle, PLAIN, port, backlog=1000)
            stack.callback(server.close)
        yield ports


async def _answer_http(reader, writer):
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while (first := await reader.read(1)) and first != b"\x16":  # whoever speaks TLS has come to the wrong place
            first += await reader.readline()
            if first == b"ping\n":
                writer.write(first)  # a port that may carry anything
                continue
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            said = json.dumps(head.split("\r\n")[:-2]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-app: %b\r\n\r\n" % said)
            await writer.drain()
    writer.close()


async def _echo(reader, writer):
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
    writer.close()
