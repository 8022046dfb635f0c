"""The node agent's one stream to the control plane: connects, reconnects when the stream ends, and keeps a `Copy` up to
date.

gRPC's errors are handled here. Rule: a group's config in the copy changes only by a valid update of that group. If the
stream fails or a message is invalid, the copy keeps its config.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio
import msgspec

from weft.base.backoff import Backoff
from weft.xds import frames
from weft.xds.clients import StreamStatus
from weft.xds.copy import Broken, Copy

log = logging.getLogger("weft.xds.upstream")

# Reports are collected for this many seconds, so that a push that all proxies of a machine acknowledge makes one
# report.
REPORT_SECONDS = 0.05
_FIRST_DELAY, _MOST_DELAY = 0.1, 10.0  # seconds between attempts to connect
_NO_LINE_DELAY = 0.5  # seconds between checks for a certificate, which are local and cheap
_GOOD_SECONDS = 10.0  # seconds: a stream that lasted this long counts as a success, even if nothing was sent
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", frames.UPDATE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),  # a channel with a new certificate must not reuse an old connection
)
_PATH = f"/{frames.SERVICE}/{frames.METHOD}"
ENDED = "the control plane ended the stream"
# gRPC's message when a write fails because the stream has ended: it hides the reason for the end.
_FORGOTTEN = "Internal error from Core"
_LAST_WORDS = 1.0  # seconds to wait for the stream's status after a failed write


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Address and credentials for one connection to the control plane. The repr contains only the address. `target`:
    HOST:PORT or unix:/path. `roots`: PEM; None for a Unix socket. `chain` and `key`: the agent's certificate, the leaf
    first, and its key, as PEM; empty without a certificate. `token`: a bearer token; empty without one. `server_name`:
    the name in the server's certificate, if it is not the host of `target`."""

    target: str  # HOST:PORT, or unix:/path
    roots: str | None = None  # PEM; None for a Unix socket
    chain: str = ""  # PEM, the leaf first
    key: bytes = b""  # PEM
    token: str = ""
    server_name: str = ""  # the name in the server's certificate, if it is not the target's host

    def __repr__(self) -> str:
        return f"Line({self.target})"


class NoLine(Exception):
    """There is no certificate or token to connect with yet; the message is the reason."""


class ControlPlaneStream:
    """The agent's connection to the control plane. `line`: a function that returns address and credentials. It is
    called before every connection, so that a renewed certificate or token is used, and raises NoLine if there are
    no credentials yet. `streams`: a function that returns the xDS streams of the node's proxies, for reports."""

    def __init__(
        self,
        copy: Copy,
        node: str,
        line: Callable[[], Awaitable[Line]],
        *,
        streams: Callable[[], Iterable[StreamStatus]] = tuple,
    ) -> None:
        self._copy, self._node, self._line, self._streams = copy, node, line, streams
        self._due = asyncio.Event()
        copy.changed = self._due.set
        self.connected = False  # whether the control plane has sent an update on the current stream
        self.trouble = ""  # why the agent is not connected
        self.bytes_received = 0
        self.bytes_sent = 0
        self.calls = 0

    async def run(self) -> None:
        """Stay connected to the control plane until cancelled."""
        backoff = Backoff(first=_FIRST_DELAY, most=_MOST_DELAY)
        loop = asyncio.get_running_loop()
        while True:
            began, delay = loop.time(), 0.0
            try:
                await self._call(backoff)
                trouble = ENDED
            except NoLine as missing:
                trouble, delay = str(missing), _NO_LINE_DELAY
            except grpc.aio.AioRpcError as error:
                forgotten = error.details() == _FORGOTTEN  # the status of the next attempt may contain the reason
                reason = f"{error.details() or 'no reason given'} ({error.code().name})"
                trouble = reason if not forgotten else self.trouble or ENDED
            except (Broken, frames.Malformed, grpc.aio.UsageError) as error:
                trouble = str(error)
            except Exception as error:
                log.exception("the stream to the control plane failed with an unexpected error")
                trouble = str(error)
            finally:
                self.connected = False
                self._copy.lost()
            if loop.time() - began > _GOOD_SECONDS:
                backoff.reset()
            if trouble != self.trouble:
                log.warning("no stream to the control plane, proxies keep their config: %s", trouble)
            self.trouble = trouble
            await asyncio.sleep(delay or backoff.next())

    async def _call(self, backoff: Backoff) -> None:
        line = await self._line()
        self.calls += 1
        metadata = (("authorization", f"Bearer {line.token}"),) if line.token else ()
        async with _channel(line) as channel:
            call: Any = channel.stream_stream(_PATH)(metadata=metadata)
            applied_nonces: list[int] = []
            listening = asyncio.create_task(self._listen(call, line, applied_nonces, backoff), name="upstream-listen")
            tasks = (listening, asyncio.create_task(self._speak(call, applied_nonces), name="upstream-speak"))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({listening}, timeout=_LAST_WORDS)
            finally:
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                call.cancel()
        for end in ends:  # the reader's exception comes first: only it has the reason
            if isinstance(end, Exception):
                raise end

    async def _listen(self, call: Any, line: Line, applied_nonces: list[int], backoff: Backoff) -> None:
        while isinstance(payload := await call.read(), bytes):
            self.bytes_received += len(payload)
            update = frames.decode_update(payload)
            self._copy.apply(update)
            if not self.connected:
                log.info("connected to the control plane at %s", line.target)
            self.connected, self.trouble = True, ""
            backoff.reset()
            applied_nonces.append(update.nonce)
            self._due.set()

    async def _speak(self, call: Any, applied_nonces: list[int]) -> None:
        loop = asyncio.get_running_loop()
        await self._write(call, self._copy.hello(self._node))
        report_at: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(report_at):
                    await self._due.wait()
            if self._due.is_set():
                self._due.clear()
                while applied_nonces:
                    await self._write(call, frames.TakenFrame(applied_nonces.pop(0)))
                if (pods := self._copy.pods_frame()) is not None:
                    await self._write(call, pods)
                for wanted in self._copy.wanted_frames():
                    await self._write(call, wanted)
                report_at = report_at or loop.time() + REPORT_SECONDS
            if report_at is not None and loop.time() >= report_at:
                report_at = None
                if (report := self._copy.report(self._streams())) is not None:
                    for payload in frames.encode_report(report):
                        await self._send(call, payload)

    async def _write(self, call: Any, frame: frames.FromAgent) -> None:
        await self._send(call, frames.encode(frame))

    async def _send(self, call: Any, payload: bytes) -> None:
        self.bytes_sent += len(payload)
        await call.write(payload)


def _channel(line: Line) -> grpc.aio.Channel:
    if line.roots is None:
        if not line.target.startswith("unix:"):
            raise NoLine("a connection to a control plane over TCP needs a root certificate; a Unix socket needs none")
        return grpc.aio.insecure_channel(line.target, options=_OPTIONS)
    named = (("grpc.ssl_target_name_override", line.server_name),) if line.server_name else ()
    credentials = grpc.ssl_channel_credentials(
        root_certificates=line.roots.encode(),
        private_key=line.key or None,
        certificate_chain=line.chain.encode() or None,
    )
    return grpc.aio.secure_channel(line.target, credentials, options=(*_OPTIONS, *named))
