"""Runs generated meshes in real Envoys, beside `explain`: two callers' proxies with all their config, and one proxy
that stands for all workloads, each at a different loopback address.

The resources of translation are used unchanged. Instead of iptables, a PROXY header in front of each connection
gives a caller's proxy the original destination. Requests are sent as bytes, so that no client library changes them.
"""

import asyncio
import contextlib
import functools
import json
import time
from datetime import timedelta

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.listener.proxy_protocol.v3.proxy_protocol_pb2 import ProxyProtocol

from authority import Authority
from explain.asked import (
    HTTP_PORT,
    NETWORK,
    NOBODY,
    OPEN_PORT,
    PLAIN,
    TCP_PORT,
    TLS_PORT,
    WEB_PORT,
    Answer,
    Told,
)
from explain.difference import disagreement, is_routed
from explain.ways import too_many
from explain.wire import app, ask_bytes, ask_http, ask_tls, bridged, envoy, logged
from golden.render import Resources as Received
from golden.render import compile_group
from model.builders import group, put
from translate.live import free_port
from weft.api.parse import parse
from weft.envoy.validate import bootstrap
from weft.explain.explain import explain
from weft.explain.request import Request, Speaks
from weft.explain.world import EnvoyResources, ExplainedWorkload, NoPort
from weft.files.documents import read_documents
from weft.mesh.mesh import Mesh
from weft.model.access_log import Encoding, FileLog
from weft.model.instance import Instance
from weft.model.names import labels_of, service_host
from weft.model.service import Protocol, Service, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, IngressListener, OutboundPolicy, Sidecar
from weft.translate.service import base
from weft.translate.view import group_view
from weft.xds.types import CLUSTER

# Long timeouts, so that protocol detection and connections succeed on a slow machine.
PATIENT = Settings(detection_timeout=timedelta(minutes=1), connect_timeout=timedelta(minutes=1))
NEAR, FAR = "eu/eu-a", "us/us-a"
SERVED = (80, TCP_PORT, OPEN_PORT, WEB_PORT, TLS_PORT)
OTHER = f"{NETWORK}.254.1"
CALLERS = {"frontend": "shop", "batch": "jobs"}
LOG = {
    "case": "%REQ(X-CASE)%",
    "route": "%ROUTE_NAME%",
    "cluster": "%UPSTREAM_CLUSTER_RAW%",
    "host": "%UPSTREAM_HOST%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
}


class RigWorld:
    def __init__(self):
        self.by_name, self.by_address, self.names = {}, {}, {}
        self.virtual = set()  # addresses of services

    def add(self, workload):
        self.by_name[workload.name] = workload
        for address in workload.addresses:
            self.by_address[address] = workload

    def workload(self, name):
        return self.by_name.get(name)

    def at(self, address):
        return self.by_address.get(address)

    def resolve(self, host, caller, *, by_proxy=False):
        return self.names.get(host, ())

    def behind(self, address, port):
        """No endpoints: the rig's network does not forward connections to a service's address that bypass all
        proxies."""
        return () if address in self.virtual else None

    def unseen(self, caller, address, port):
        return None

    def uncalled(self, caller, cluster):
        return ""

    def no_port(self, address, port):
        if address not in self.virtual or port in SERVED:
            return None
        return NoPort(f"{address} has no port {port}")

    def intercepts(self, workload, address, port, *, inbound):
        return True


async def compare(cases, settings=PATIENT):
    """The result of every request in Envoy, with the explanation of the request."""
    async with app() as port:
        batch = _Batch(cases, settings, port)
        async with batch.running():
            return await batch.ask_all()


class _Batch:
    def __init__(self, cases, settings, port):
        self.cases, self.app, self.bridge = cases, port, free_port()
        self.world = RigWorld()
        self.refused = []  # documents that weft itself rejects
        self.mesh = self._mesh(settings)
        self.callers = {
            name: compile_group(self.mesh, msgspec.structs.replace(group(name, ns), locality=NEAR), judge=False)[0]
            for name, ns in CALLERS.items()
        }
        self.servers = [_received(self.mesh, group(f"s{number}")) for number in range(len(cases))]
        for name, namespace in CALLERS.items():
            identity = f"spiffe://cluster.local/ns/{namespace}/sa/{name}"
            self.world.add(ExplainedWorkload(name, ("127.0.0.1",), identity, _resources(self.callers[name])))
        orders = "spiffe://cluster.local/ns/shop/sa/orders"
        for number, made in enumerate(self.servers):
            self.world.add(ExplainedWorkload(f"s{number}-0", (_pod(number),), orders, _resources(made)))
        self.world.add(ExplainedWorkload("legacy", ("127.0.0.1",)))
        self.world.add(ExplainedWorkload("plain", (PLAIN,)))
        self.world.add(ExplainedWorkload("nobody", (NOBODY,), ports=frozenset()))

    def _mesh(self, settings):
        log = FileLog("access.log", Encoding.JSON, json.dumps(LOG))
        mesh = Mesh(msgspec.structs.replace(settings, logs=(log,)))
        # A service that routes of others lead to. Its endpoint is the first pod.
        other = _instance("other", 0, _pod(0), "v1", meshed=True, service_account="orders", locality=NEAR)
        put(mesh, _service("other", OTHER), other)
        self.world.virtual.add(OTHER)
        deep = [_instance("deep", 0, _pod(0), "v1", meshed=True, service_account="orders")]
        put(mesh, _service("deep"), *deep, _instance("deep", 1, PLAIN, "v2"))
        if (
            settings.outbound_policy is OutboundPolicy.REGISTRY_ONLY
        ):  # and of whom it knows, one caller sees every other
            seen = tuple(f"shop/s{number}.shop.svc.cluster.local" for number in range(0, len(self.cases), 2))
            put(mesh, Sidecar("jobs", "jobs", egress=(EgressListener(seen),)))
        for number, case in enumerate(self.cases):
            name = f"s{number}"
            ingress = tuple(
                IngressListener(ServicePort(port, protocol=protocol), f"127.0.0.1:{self.bridge}")
                for port, protocol in (
                    (HTTP_PORT, Protocol.HTTP),
                    (TCP_PORT, Protocol.TCP),
                    (OPEN_PORT, Protocol.UNDECLARED),
                    (WEB_PORT, Protocol.GRPC_WEB),
                    (TLS_PORT, Protocol.TLS),
                )
            )
            self.world.virtual |= {_virtual(number), _outside(number)}
            put(
                mesh,
                _service(name, _virtual(number)),
                _instance(name, 0, _pod(number), "v1", meshed=True, service_account=case.account, locality=NEAR),
                *(() if case.alone else (_instance(name, 1, PLAIN, "v2", locality=FAR),)),
                Sidecar(name, "shop", labels_of({"app": name}), ingress=ingress),
            )
            for document in case.documents:
                text = (
                    json.dumps(document).replace("SERVICE", name).replace("OUTSIDE", _outside(number))
                )  # parsed faster than YAML, and lines do not matter here
                (read,) = read_documents(text.encode(), f"{name}.json").documents
                parsed = parse(read)
                self.refused += [str(each) for each in parsed.problems if each.severity == "error"]
                mesh.apply(read.key, parsed.values)
        return mesh

    @contextlib.asynccontextmanager
    async def running(self):
        async with contextlib.AsyncExitStack() as stack:
            self.logs = {}
            clusters, endpoints = {}, {}
            for made in self.servers:
                clusters |= {each.name: each for each in made.clusters}
                endpoints |= {each.cluster_name: each for each in made.endpoints}
            listeners = [_at_pod(made, _pod(number)) for number, made in enumerate(self.servers)]
            self.ports = {name: free_port() for name in CALLERS}
            self.by_http2 = {name: free_port() for name in CALLERS}
            bridges = [
                bridged(
                    "bridge", (("127.0.0.1", self.bridge), *((PLAIN, port) for port in (*SERVED, HTTP_PORT))), self.app
                ),
                *(
                    bridged(f"as-{name}", (("127.0.0.1", self.by_http2[name]),), self.ports[name], to_http2=True)
                    for name in CALLERS
                ),
            ]
            clusters |= {cluster.name: cluster for _, cluster in bridges}
            listeners += [each for made, _ in bridges for each in made]
            document = bootstrap(listeners=listeners, clusters=clusters.values(), endpoints=endpoints.values())
            places = [(_pod(len(self.cases) - 1), HTTP_PORT)]
            identity = "spiffe://cluster.local/ns/shop/sa/orders"
            self.logs["server"] = await stack.enter_async_context(envoy(document, _credentials(identity), places))
            for name, namespace in CALLERS.items():
                port, made = self.ports[name], self.callers[name]
                document = bootstrap(
                    listeners=[_intercepting(each, port) for each in made.listeners if each.name != "virtualInbound"],
                    clusters=made.clusters,
                    routes=made.routes,
                    endpoints=made.endpoints,
                )
                issued = _credentials(f"spiffe://cluster.local/ns/{namespace}/sa/{name}")
                self.logs[name] = await stack.enter_async_context(envoy(document, issued, [("127.0.0.1", port)]))
            yield

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
            proxied = {case for case, each in answered.items() if each.asked.caller == name and is_routed(each)}
            for case, line in (await logged(self.logs[name], proxied)).items():
                told[int(case)].answer.logged = line
        reached = {case for case, each in answered.items() if _reached_a_proxy(each)}
        for case, line in (await logged(self.logs["server"], reached)).items():
            told[int(case)].answer.server_logged = line
        for each in told:
            each.disagreement = disagreement(each) or too_many(each)
        assert not self.refused, self.refused
        return told

    async def _ask(self, index, number, case, asked, own):
        host = asked.host.replace("SERVICE", f"s{number}") or service_host(f"s{number}", "shop", "cluster.local")
        address = {
            "service": _virtual(number),
            "pod": _pod(number),
            "plain": PLAIN,
            "nobody": NOBODY,
            "outside": _outside(number),
        }[asked.to]
        path, headers, known = asked.carried()
        request = Request(
            host=host,
            port=asked.port,
            method=asked.method,
            path=path,
            headers=(*headers, ("X-Case", str(index))),
            caller=asked.caller,
            address=address,
            speaks=asked.speaks,
            server_name=asked.server_name.replace("SERVICE", f"s{number}") if asked.speaks is Speaks.TLS else "",
            offers=asked.offers,
            tokens=known,
            now=int(time.time()),
        )
        said = explain(request, self.world)
        answer = await self._send(request, own)
        return Told(case, asked, request, said, answer)

    async def _send(self, request, own):
        direct = request.caller == "legacy"
        key = (request.caller, request.address, request.port, request.speaks)
        for attempt in (1, 2):  # a reused connection may have been closed meanwhile
            fresh = key not in own or not request.is_http
            try:
                reader, writer = own.pop(key) if not fresh else await self._connect(request, direct)
                send = {Speaks.BYTES: ask_bytes, Speaks.TLS: ask_tls}.get(request.speaks, ask_http)
                answer = await asyncio.wait_for(send(reader, writer, request), 20)
            except TimeoutError:
                writer.close()
                return Answer(-1)  # neither a response nor a closed connection
            except (ConnectionError, asyncio.IncompleteReadError):
                if fresh or attempt == 2:
                    return Answer()
                continue
            if answer.status and request.is_http and request.method != "CONNECT":
                own[key] = (reader, writer)
            else:
                writer.close()
            return answer
        return Answer()

    async def _connect(self, request, direct):
        if direct:
            return await asyncio.open_connection(request.address, request.port)
        ports = self.by_http2 if request.speaks is Speaks.HTTP2 else self.ports
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[request.caller])
        writer.write(f"PROXY TCP4 127.0.0.1 {request.address} 1234 {request.port}\r\n".encode())
        return reader, writer


def _received(mesh, owner):
    """The resources of a workload's proxy, without outbound services: it makes no calls here."""
    made = base(group_view(mesh, owner))
    return Received(
        clusters=[Cluster.FromString(each.body) for each in made.clusters if each.type_url == CLUSTER],
        listeners=[Listener.FromString(each.body) for each in made.listeners],
    )


def _resources(made):
    return EnvoyResources(made.listeners, made.routes, made.clusters, made.endpoints)


def _service(name, address=None):
    return Service(
        host=service_host(name, "shop", "cluster.local"),
        name=name,
        namespace="shop",
        ports=(
            ServicePort(80, "http", Protocol.HTTP, HTTP_PORT),
            ServicePort(TCP_PORT, "tcp", Protocol.TCP, TCP_PORT),
            ServicePort(OPEN_PORT, "open", Protocol.UNDECLARED, OPEN_PORT),
            ServicePort(WEB_PORT, "grpc-web", Protocol.GRPC_WEB, WEB_PORT),
            ServicePort(TLS_PORT, "tls", Protocol.TLS, TLS_PORT),
        ),
        selector=labels_of({"app": name}),
        addresses=(address,) if address else (),
        headless=address is None,
    )


def _instance(name, number, address, version, **more):
    return Instance(f"{name}-{number}", "shop", (address,), labels_of({"app": name, "version": version}), **more)


def _pod(number):
    return f"{NETWORK}.{number // 200}.{number % 200 + 1}"


def _virtual(number):
    """A loopback address on which nothing listens: a connection that no proxy redirects is refused."""
    return f"{NETWORK}.{128 + number // 200}.{number % 200 + 1}"


def _outside(number):
    return f"{NETWORK}.{192 + number // 200}.{number % 200 + 1}"


def _at_pod(made, address):
    listener = type(made.listeners[0])()
    listener.CopyFrom(next(each for each in made.listeners if each.name == "virtualInbound"))
    listener.name = f"{listener.name}-{address}"
    del listener.additional_addresses[:]
    listener.address.socket_address.address = address
    listener.address.socket_address.port_value = HTTP_PORT
    for port in (TCP_PORT, OPEN_PORT, WEB_PORT, TLS_PORT):
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


def _reached_a_proxy(told):
    """Whether the workload's proxy logs the request: not if its codec could not parse it."""
    if any(outcome.verdict.detail == "http1.codec_error" for outcome in told.explanation.outcomes):
        return False
    if told.asked.caller == "legacy":
        return told.asked.to == "pod"
    return (told.answer.logged.get("host") or "").startswith(f"{NETWORK}.") and not told.answer.logged[
        "host"
    ].startswith(PLAIN)
