"""Readiness probes: checks whether an app can serve, and calls back when the result changes.

The probe connects from inside the pod's network namespace, from a socket of root, to the pod's own address. The
interception rules do not redirect this connection (it stays on `lo`, and does not belong to the proxy's user). So the
probe reaches the app itself, on the address that the mesh will call, as kubelet on the pod's node would. A proxy that
is down does not count against the app. A probe of 127.0.0.1 would pass for an app that no other pod can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from weft.local.probe_thread import on_probe_thread
from weft.model.workload import ExecProbe, HttpProbe, Probe, TcpProbe
from weft.netns.namespace import NetworkError, NetworkNamespace, socket_in

_FIRST_WAIT = 0.01  # seconds between the first two probes; a refused connection is cheap
_SLOWER = 1.3  # factor of each further wait: an app is found ready at most 30 % later than it was
_MOST_HEAD = 64 * 1024  # bytes of a response that are read

Tell = Callable[[bool, str], None]  # (ready, why not)


class ProbeTarget(msgspec.Struct, frozen=True):
    namespace: NetworkNamespace
    address: str
    ports: tuple[tuple[str, int], ...]  # by name
    run: Callable[[tuple[str, ...]], Awaitable[int]]  # runs a command as the app's user; returns its status


class Thresholds:
    """Counts the consecutive probe results that contradict `ready`, and flips `ready` when their number reaches the
    probe's threshold."""

    def __init__(self, probe: Probe) -> None:
        self.ready = False
        self._success, self._failure = probe.success_threshold, probe.failure_threshold
        self._against = 0

    def count(self, *, passed: bool) -> bool:
        """Count one probe result. `passed`: whether the probe succeeded. Return whether `ready` changed."""
        if passed == self.ready:
            self._against = 0
            return False
        self._against += 1
        if self._against < (self._success if passed else self._failure):
            return False
        self.ready, self._against = passed, 0
        return True


async def watch(probe: Probe, target: ProbeTarget, tell: Tell) -> None:
    """Probe `target` until cancelled, and call `tell(ready, why not)` when the readiness changes. While the app is
    not ready, `tell` is also called with each new failure, so that users see the reason."""
    await asyncio.sleep(probe.initial_delay.total_seconds())
    thresholds = Thresholds(probe)
    period = probe.period.total_seconds()
    wait, last_failure = min(_FIRST_WAIT, period), ""
    while True:
        failure = await check(probe, target)
        if thresholds.count(passed=not failure) or (failure and not thresholds.ready and failure != last_failure):
            tell(thresholds.ready, failure)
        last_failure = failure
        await asyncio.sleep(period if thresholds.ready else wait)
        wait = min(wait * _SLOWER, period)


async def until_passed(probe: Probe, target: ProbeTarget) -> None:
    wait = _FIRST_WAIT
    while await check(probe, target):
        await asyncio.sleep(wait)
        wait = min(wait * _SLOWER, probe.period.total_seconds())


async def check(probe: Probe, target: ProbeTarget) -> str:
    """Probe the app `target` once. Return what was checked and why it failed, or "" if it passed."""
    failure = await _failure(probe, target)
    return f"{_question(probe, target)}: {failure}" if failure else ""


def _question(probe: Probe, target: ProbeTarget) -> str:
    numbers: dict[int | str, int] = dict(target.ports)
    match probe.check:
        case HttpProbe(port=port, path=path):
            return f"GET {path} on port {numbers.get(port, port)}"
        case TcpProbe(port=port):
            return f"port {numbers.get(port, port)}"
        case ExecProbe(command=command):
            return command[0]


async def _failure(probe: Probe, target: ProbeTarget) -> str:
    if isinstance(probe.check, ExecProbe):  # processes are started on the engine's event loop
        return await _attempt(probe, target)
    return await on_probe_thread(_attempt(probe, target))


async def _attempt(probe: Probe, target: ProbeTarget) -> str:
    try:
        async with asyncio.timeout(probe.timeout.total_seconds()):
            match probe.check:
                case HttpProbe():
                    return await _ask_http(probe.check, target)
                case TcpProbe(port=port):
                    with await _connect(target, port):
                        return ""
                case ExecProbe(command=command):
                    status = await target.run(command)
                    return f"exit status {status}" if status else ""
    except TimeoutError:
        return f"no answer within {probe.timeout.total_seconds():g} s"
    except NetworkError as error:
        return error.problem.what
    except ssl.SSLError as error:
        return f"TLS: {error.reason or error}"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    except asyncio.IncompleteReadError:
        return "the response is not HTTP"
    except ValueError as error:
        return str(error)


async def _ask_http(question: HttpProbe, target: ProbeTarget) -> str:
    connection = await _connect(target, question.port)
    tls = _unverified() if question.scheme.upper() == "HTTPS" else None
    reader, writer = await asyncio.open_connection(
        sock=connection, ssl=tls, server_hostname=target.address if tls else None, limit=_MOST_HEAD
    )
    try:
        headers = {"host": f"{target.address}:{_port(question.port, target)}", "user-agent": "weft-probe"}
        headers |= {name.lower(): value for name, value in question.headers}
        lines = [f"GET {question.path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items()), "connection: close"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        status_line = (await reader.readuntil(b"\n")).decode(errors="replace").split()
    except asyncio.LimitOverrunError:
        return "the response is not HTTP"
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
    if len(status_line) < 2 or not status_line[0].startswith("HTTP/") or not status_line[1].isdigit():
        return "the response is not HTTP"
    # As in kubelet, a redirect counts as success.
    return "" if 200 <= int(status_line[1]) < 400 else f"answered {status_line[1]}"


async def _connect(target: ProbeTarget, port: int | str) -> socket.socket:
    number = _port(port, target)
    family = socket.AF_INET6 if ":" in target.address else socket.AF_INET
    connection = socket_in(target.namespace, family)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (target.address, number))
    except BaseException:
        connection.close()
        raise
    return connection


def _port(port: int | str, target: ProbeTarget) -> int:
    number = port if isinstance(port, int) else dict(target.ports).get(port)
    if number is None:
        raise ValueError(f"the workload has no port named `{port}`")
    return number


def _unverified() -> ssl.SSLContext:
    # As in kubelet, the probe checks that the app answers, not its identity.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
