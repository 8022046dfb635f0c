"""DNS for pods: UDP and TCP port 53 on the bridge, inside the mesh's namespace, served by the engine's own loop. Their
proxies ask at another port: to them a host outside of the mesh is not the address that the mesh gave it.

Names of the mesh are answered from `translate/lookup.py`. Every other question goes, as the very bytes that came, to
the resolvers that the machine itself uses, and their answer comes back as it is. Nothing that comes in can stop the
server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from weft.netns.namespace import NetworkNamespace, socket_in
from weft.translate.lookup import Answer, Found, NoSuchName, NotOurs

PORT = 53
PROXY_PORT = 5353  # where proxies ask

_TTL = 5  # seconds; as CoreDNS: pods come and go
_UDP_SIZE = 1232  # bytes; the flag-day size, which no path fragments
_UPSTREAM_TIMEOUT = 2.0  # seconds for each resolver, then the next is asked
_ROUNDS = 2  # how often each resolver is asked before giving up
_ASKED = 128  # questions passed on at one time; more are answered SERVFAIL at once. The mesh's own names never wait
_CONNECTIONS = 128
_TCP_IDLE = 10.0  # seconds between two questions on one connection

log = logging.getLogger("weft.local.dns")

LookUp = Callable[[str, str], Answer]  # (name, the asking address) → answer


class DnsServer:
    def __init__(
        self,
        look_up: LookUp,
        upstreams: Callable[[], Sequence[tuple[str, int]]] | None = None,
        found: Callable[[Sequence[str], str], None] = lambda addresses, asker: None,
    ) -> None:
        """`found` is told which addresses of the mesh somebody has learned: he is about to call them."""
        self._look_up = look_up
        self._found = found
        self._upstreams = upstreams or HostResolvers()
        self._transports: list[asyncio.DatagramTransport] = []
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._asked = 0

    async def listen(self, namespace: NetworkNamespace, addresses: Sequence[str], port: int = PORT) -> None:
        loop = asyncio.get_running_loop()
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            datagrams = socket_in(namespace, family, socket.SOCK_DGRAM)
            datagrams.bind((address, port))
            transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=datagrams)
            self._transports.append(transport)
            stream = socket_in(namespace, family, socket.SOCK_STREAM)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stream.bind((address, port))
            self._servers.append(await asyncio.start_server(self._serve_connection, sock=stream))

    async def close(self) -> None:
        for transport in self._transports:
            transport.close()
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._transports.clear()
        self._servers.clear()

    async def answer(self, wire: bytes, asker: str, *, over_tcp: bool) -> bytes | None:
        """The answer's bytes; None for what deserves none."""
        try:
            query = dns.message.from_wire(wire, ignore_trailing=True)
        except Exception:  # noqa: BLE001 - whatever a stranger's bytes make the parser do, it is their fault
            return _refuse(wire, dns.rcode.FORMERR)
        if query.flags & dns.flags.QR:
            return None
        if query.opcode() != dns.opcode.QUERY or len(query.question) != 1:
            return _refuse(wire, dns.rcode.NOTIMP)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        found = NotOurs() if question.rdclass != dns.rdataclass.IN else self._look_up(name, asker)
        if isinstance(found, NotOurs):
            return await self._pass_on(wire, over_tcp=over_tcp)
        if isinstance(found, Found) and question.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            self._found(found.addresses, asker)
        limit = 65535 if over_tcp else max(512, min(query.payload, _UDP_SIZE) if query.edns >= 0 else 512)
        return _response(query, found).to_wire(max_size=limit, prefer_truncation=True)

    async def _pass_on(self, wire: bytes, *, over_tcp: bool) -> bytes | None:
        if self._asked >= _ASKED:
            return _refuse(wire, dns.rcode.SERVFAIL)
        ask = _ask_over_tcp if over_tcp else _ask_over_udp
        self._asked += 1
        try:
            upstreams = self._upstreams()
            for _ in range(_ROUNDS):
                for upstream in upstreams:
                    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                        async with asyncio.timeout(_UPSTREAM_TIMEOUT):
                            return await ask(upstream, wire)
        finally:
            self._asked -= 1
        return _refuse(wire, dns.rcode.SERVFAIL)

    def receive(self, wire: bytes, asker: tuple[str, int], transport: asyncio.DatagramTransport) -> None:
        async def reply() -> None:
            answer = await self._guarded(wire, asker[0], over_tcp=False)
            if answer is not None and not transport.is_closing():
                transport.sendto(answer, asker)

        task = asyncio.create_task(reply())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, wire: bytes, asker: str, *, over_tcp: bool) -> bytes | None:
        try:
            return await self.answer(wire, asker, over_tcp=over_tcp)
        except Exception:
            log.exception("a DNS question from %s could not be answered", asker)
            return _refuse(wire, dns.rcode.SERVFAIL)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if self._connections >= _CONNECTIONS or task is None:
            writer.close()
            return
        self._connections += 1
        self._tasks.add(task)
        asker = str(writer.get_extra_info("peername", ("",))[0])
        try:
            while True:
                async with asyncio.timeout(_TCP_IDLE):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    wire = await reader.readexactly(length)
                answer = await self._guarded(wire, asker, over_tcp=True)
                if answer is None:
                    return
                writer.write(struct.pack("!H", len(answer)) + answer)
                async with asyncio.timeout(_TCP_IDLE):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            self._connections -= 1
            self._tasks.discard(task)
            writer.close()


class HostResolvers:
    """The name servers of the machine's own resolv.conf, read again when it changes."""

    def __init__(self, path: Path = Path("/etc/resolv.conf")) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._servers: tuple[tuple[str, int], ...] = ()

    def __call__(self) -> Sequence[tuple[str, int]]:
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._stamp:
                self._servers = tuple(_name_servers(self._path.read_text(encoding="utf-8", errors="replace")))
                self._stamp = (status.st_mtime_ns, status.st_ino)
        except OSError:
            return ()
        return self._servers


def resolver_file(server: str, namespace: str, domain: str) -> str:
    """A pod's own resolv.conf, as kubelet writes it."""
    return f"nameserver {server}\nsearch {namespace}.svc.{domain} svc.{domain} {domain}\noptions ndots:5\n"


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.receive(data, addr, self._transport)

    def error_received(self, exc: Exception) -> None:
        log.debug("a DNS answer was not delivered: %s", exc)


def _response(query: dns.message.Message, found: Found | NoSuchName) -> dns.message.Message:
    response = dns.message.make_response(query, recursion_available=True)
    response.flags |= dns.flags.AA
    if isinstance(found, NoSuchName):
        response.set_rcode(dns.rcode.NXDOMAIN)
        return response
    question = query.question[0]
    for version, record in ((4, dns.rdatatype.A), (6, dns.rdatatype.AAAA)):
        addresses = list(found.of_version(version)) if question.rdtype == record else []
        if addresses:
            # Callers take the first; in a headless service each pod is to be the first as often as the others.
            random.shuffle(addresses)
            response.answer.append(dns.rrset.from_text_list(question.name, _TTL, "IN", record, addresses))
    if question.rdtype == dns.rdatatype.PTR and found.names:
        names = [f"{name}." for name in found.names]
        response.answer.append(dns.rrset.from_text_list(question.name, _TTL, "IN", dns.rdatatype.PTR, names))
    return response


def _refuse(wire: bytes, code: dns.rcode.Rcode) -> bytes | None:
    """An empty answer with a code, made from the question's bytes alone, since they may not be readable."""
    if len(wire) < 12 or wire[2] & 0x80:
        return None
    flags = 0x8080 | (wire[2] & 0x79) << 8 | int(code)
    return wire[:2] + struct.pack("!H", flags) + bytes(8)


def _name_servers(text: str) -> list[tuple[str, int]]:
    lines = (line.split() for line in text.splitlines())
    return [(words[1], PORT) for words in lines if len(words) >= 2 and words[0] == "nameserver"]


async def _ask_over_udp(upstream: tuple[str, int], wire: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in upstream[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        # Connected: only the resolver's own address and port can answer.
        await loop.sock_connect(asking, upstream)
        await loop.sock_sendall(asking, wire)
        while True:
            answer = await loop.sock_recv(asking, 65535)
            if answer[:2] == wire[:2] and len(answer) >= 12:
                return answer


async def _ask_over_tcp(upstream: tuple[str, int], wire: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*upstream)
    try:
        writer.write(struct.pack("!H", len(wire)) + wire)
        await writer.drain()
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        return await reader.readexactly(length)
    finally:
        writer.close()
