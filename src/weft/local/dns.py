"""The DNS server of the pods: UDP and TCP port 53 on the bridge, in the mesh's network namespace. It runs on the event
loop of `dns_thread.py`.

Proxies use a second server on another port, because a proxy must not resolve an external host to the virtual address
that the mesh has assigned to that host. Names of the mesh are resolved with `translate/lookup.py`. Every other query is
forwarded unchanged to the resolvers of the machine, and their answer is returned unchanged. No input can stop the
server, and one pod can use only its share of it (`asker_limits.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
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

from weft.local.asker_limits import MOST_CONNECTIONS, MOST_FORWARDED, AskerLimits
from weft.netns.namespace import NetworkNamespace, socket_in
from weft.translate.lookup import Answer, Found, NoSuchName, NotOurs

PORT = 53
PROXY_PORT = 5353  # the DNS port for proxies

_TTL = 5  # seconds, as in CoreDNS: addresses of pods change often
_UDP_SIZE = 1232  # bytes; the limit of DNS flag day 2020, small enough never to be fragmented
_UPSTREAM_TIMEOUT = 2.0  # seconds for each resolver before the next one is tried
_ROUNDS = 2  # how often each resolver is tried before giving up
_ASKED = 128  # forwarded queries in flight; SERVFAIL beyond that. Names of the mesh are not limited
_CONNECTIONS = 128
_FORWARDING, _CONNECTED = "forwarding", "connected"  # kinds of work that are limited for each client
_BUFFER = 4 << 20  # bytes of queries that wait in the kernel; the kernel may allow less
_AT_ONCE = 64  # datagrams that are read before other work has its turn
_TCP_IDLE = 10.0  # seconds between two queries on one connection

log = logging.getLogger("weft.local.dns")

LookUp = Callable[[str, str], Awaitable[Answer]]  # (name, address of the client) → answer


class DnsServer:
    def __init__(
        self,
        look_up: LookUp,
        upstreams: Callable[[], Sequence[tuple[str, int]]] | None = None,
        found: Callable[[Sequence[str], str], None] = lambda addresses, asker: None,
    ) -> None:
        """`look_up` resolves names of the mesh. `upstreams` returns the resolvers for other names, as (address, port);
        by default those of the machine. `found` is called with the addresses of the mesh that an answer contains and
        with the address of the client, which is about to connect to them."""
        self._look_up = look_up
        self._found = found
        self._upstreams = upstreams or HostResolvers()
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._asked = 0
        self._limits = AskerLimits()

    async def listen(self, namespace: NetworkNamespace, addresses: Sequence[str], port: int = PORT) -> None:
        loop = asyncio.get_running_loop()
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            datagrams = socket_in(namespace, family, socket.SOCK_DGRAM)
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            datagrams.setblocking(False)
            datagrams.bind((address, port))
            self._sockets.append(datagrams)
            loop.add_reader(datagrams, self._read, datagrams)
            stream = socket_in(namespace, family, socket.SOCK_STREAM)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stream.bind((address, port))
            self._servers.append(await asyncio.start_server(self._serve_connection, sock=stream))

    async def close(self) -> None:
        for datagrams in self._sockets:
            asyncio.get_running_loop().remove_reader(datagrams)
            datagrams.close()
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sockets.clear()
        self._servers.clear()

    async def answer(self, wire: bytes, asker: str, *, over_tcp: bool) -> bytes | None:
        """Return the bytes of the answer to the query `wire` from the address `asker`. Return None for a message that
        must not be answered, such as a response. `over_tcp`: whether the query came by TCP."""
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
        answer = NotOurs() if question.rdclass != dns.rdataclass.IN else await self._look_up(name, asker)
        if isinstance(answer, NotOurs):
            return await self._pass_on(wire, asker, over_tcp=over_tcp)
        if isinstance(answer, Found) and question.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            self._found(answer.addresses, asker)
        limit = 65535 if over_tcp else max(512, min(query.payload, _UDP_SIZE) if query.edns >= 0 else 512)
        return _response(query, answer).to_wire(max_size=limit, prefer_truncation=True)

    async def _pass_on(self, wire: bytes, asker: str, *, over_tcp: bool) -> bytes | None:
        if self._asked >= _ASKED or not self._limits.begin(asker, _FORWARDING, MOST_FORWARDED):
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
            self._limits.end(asker, _FORWARDING)
        return _refuse(wire, dns.rcode.SERVFAIL)

    def _read(self, datagrams: socket.socket) -> None:
        """Read the datagrams that have arrived at a socket. Several are read at once, because under a flood of one
        client most of them are only counted and dropped."""
        for _ in range(_AT_ONCE):
            try:
                wire, asker = datagrams.recvfrom(65535)
            except BlockingIOError:
                return
            except OSError as error:  # an earlier answer was not delivered
                log.debug("cannot send a DNS answer: %s", error)
                continue
            if self._limits.admits(asker[0], time.monotonic()):
                task = asyncio.create_task(self._reply(wire, asker, datagrams))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _reply(self, wire: bytes, asker: tuple[str, int], datagrams: socket.socket) -> None:
        answer = await self._guarded(wire, asker[0], over_tcp=False)
        if answer is not None and datagrams.fileno() >= 0:
            try:
                datagrams.sendto(answer, asker)
            except OSError as error:  # also if the socket's buffer is full: the client repeats its query
                log.debug("cannot send a DNS answer: %s", error)

    async def _guarded(self, wire: bytes, asker: str, *, over_tcp: bool) -> bytes | None:
        try:
            return await self.answer(wire, asker, over_tcp=over_tcp)
        except Exception:
            log.exception("cannot answer a DNS query from %s", asker)
            return _refuse(wire, dns.rcode.SERVFAIL)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        asker = str(writer.get_extra_info("peername", ("",))[0])
        if (
            task is None
            or self._connections >= _CONNECTIONS
            or not self._limits.begin(asker, _CONNECTED, MOST_CONNECTIONS)
        ):
            writer.close()
            return
        self._connections += 1
        self._tasks.add(task)
        try:
            while True:
                async with asyncio.timeout(_TCP_IDLE):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    wire = await reader.readexactly(length)
                if not self._limits.admits(asker, time.monotonic()):
                    return
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
            self._limits.end(asker, _CONNECTED)
            self._tasks.discard(task)
            writer.close()


class HostResolvers:
    """The name servers in the machine's resolv.conf, which is read again when it changes."""

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
    """Return the text of the resolv.conf of a pod in this namespace, in the form that kubelet writes. `server`: the
    address of the DNS server. `domain`: the DNS domain of services."""
    return f"nameserver {server}\nsearch {namespace}.svc.{domain} svc.{domain} {domain}\noptions ndots:5\n"


def _response(query: dns.message.Message, answer: Found | NoSuchName) -> dns.message.Message:
    response = dns.message.make_response(query, recursion_available=True)
    response.flags |= dns.flags.AA
    if isinstance(answer, NoSuchName):
        response.set_rcode(dns.rcode.NXDOMAIN)
        return response
    question = query.question[0]
    for version, record in ((4, dns.rdatatype.A), (6, dns.rdatatype.AAAA)):
        addresses = list(answer.of_version(version)) if question.rdtype == record else []
        if addresses:
            # Clients connect to the first address. The shuffle spreads connections over the pods of a headless service.
            random.shuffle(addresses)
            response.answer.append(dns.rrset.from_text_list(question.name, _TTL, "IN", record, addresses))
    if question.rdtype == dns.rdatatype.PTR and answer.names:
        names = [f"{name}." for name in answer.names]
        response.answer.append(dns.rrset.from_text_list(question.name, _TTL, "IN", dns.rdatatype.PTR, names))
    return response


def _refuse(wire: bytes, code: dns.rcode.Rcode) -> bytes | None:
    """Return an answer without records and with the response code `code`. It is built from the header bytes of the
    query `wire`, because the rest of the query may not be parsable. Return None if `wire` is shorter than a
    header, or is itself a response."""
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
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        connection.setblocking(False)
        # On a connected socket, the kernel accepts only datagrams from the resolver's address and port.
        await loop.sock_connect(connection, upstream)
        await loop.sock_sendall(connection, wire)
        while True:
            answer = await loop.sock_recv(connection, 65535)
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
