"""Asking a running mesh over its socket, from the command line. Blocking on purpose: a command asks once and prints."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from weft.base.problem import Problem
from weft.local.error import CannotStart, LocalError, NoSuchMesh
from weft.local.run_directory import find, socket_of
from weft.local.status import CANNOT_START, Entrance, MeshStatus

if TYPE_CHECKING:  # it brings all of X.509 along, and most commands never ask
    from weft.ca.status import AuthorityStatus

_TIMEOUT = 10.0  # seconds without a byte


def fetch_status(name: str) -> MeshStatus:
    return msgspec.json.decode(_ask(name, "GET", "/status"), type=MeshStatus)


def fetch_problems(name: str) -> tuple[Problem, ...]:
    return msgspec.json.decode(_ask(name, "GET", "/problems"), type=tuple[Problem, ...])


def fetch_admin(name: str, pod: str, path: str, query: dict[str, str] | None = None, *, method: str = "GET") -> bytes:
    """Envoy's own answer, as it is. POST only where the mesh lets it: levels of its log."""
    return _ask(name, method, "/admin", {"pod": pod, "path": path} | (query or {}))


def fetch_debug(name: str, page: str, query: dict[str, str] | None = None, question: bytes = b"") -> bytes:
    """What the control plane knows, as Istio's /debug/PAGE says it. `question`: one that is too long for a query."""
    return _ask(name, "POST" if question else "GET", f"/debug/{page}", query, question)


def fetch_entrance(name: str, pod: str, command: Sequence[str]) -> Entrance:
    """What to become (os.execve) to run a command in a pod, or in a ready pod of a workload."""
    answer = _ask(name, "POST", "/exec", {"pod": pod}, body=msgspec.json.encode(list(command)))
    return msgspec.json.decode(answer, type=Entrance)


def fetch_ca(name: str) -> AuthorityStatus:
    """The mesh's CA: its roots, and how far a rotation is."""
    from weft.ca.status import AuthorityStatus

    return msgspec.json.decode(_ask(name, "GET", "/ca"), type=AuthorityStatus)


def rotate_ca(name: str, propagation: timedelta | None = None) -> AuthorityStatus:
    """Begin to move a mesh to a new root; it signs after `propagation`. Follow it with `fetch_ca`."""
    from weft.ca.status import AuthorityStatus

    query = {} if propagation is None else {"propagation": str(propagation.total_seconds())}
    return msgspec.json.decode(_ask(name, "POST", "/ca/rotate", query), type=AuthorityStatus)


def read_logs(
    name: str, pod: str, *, follow: bool = False, proxy: bool = False, lines: int | None = None
) -> Iterator[str]:
    """Lines as they are, and with `follow` as they come, until the pod is gone."""
    query = {"pod": pod} | ({"follow": "1"} if follow else {}) | ({"stream": "proxy"} if proxy else {})
    connection = _connect(name)
    try:
        answer = _request(connection, name, "GET", "/logs", query | ({} if lines is None else {"lines": str(lines)}))
        if follow and connection.sock is not None:
            connection.sock.settimeout(None)
        while line := answer.readline():
            yield line.decode(errors="replace").rstrip("\n")
    except (http.client.HTTPException, OSError):
        return  # the mesh has ended, and with it its logs
    finally:
        connection.close()


def end_mesh(name: str, timeout: float = 30.0) -> bool:
    """Ask a mesh to end, and wait until it has. False if it still runs after that many seconds."""
    _ask(name, "POST", "/down")
    deadline = time.monotonic() + timeout
    while (record := find(name)) is not None and record.running:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def ask_at(path: Path, url: str, query: dict[str, str] | None = None, question: bytes = b"") -> bytes:
    """Ask a `weft control`, at the path of its socket. `question`: one that is too long for a query."""
    connection = _Connection(str(path))
    try:
        connection.connect()
        return _request(connection, str(path), "POST" if question else "GET", url, query or {}, question).read()
    except PermissionError as error:
        raise LocalError(f"{path}: permission denied", "only who runs weft control may ask it") from error
    except (http.client.HTTPException, OSError) as error:
        hint = f"is it running? weft control --debug {path.parent}"
        raise LocalError(f"no weft control answers at {path}: {error}", hint) from error
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(name: str, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    connection = _connect(name)
    try:
        return _request(connection, name, method, path, query or {}, body).read()
    except (http.client.HTTPException, OSError) as error:
        raise LocalError(f"mesh `{name}` does not answer: {error}", f"weft down {name}") from error
    finally:
        connection.close()


def _connect(name: str) -> _Connection:
    connection = _Connection(str(socket_of(name)))
    try:
        connection.connect()
    except PermissionError as error:
        raise LocalError(f"{socket_of(name)}: permission denied", "run as root: sudo weft …") from error
    except OSError as error:
        raise NoSuchMesh(name) from error
    return connection


def _request(
    connection: _Connection, name: str, method: str, path: str, query: dict[str, str], body: bytes = b""
) -> http.client.HTTPResponse:
    connection.request(method, f"{path}?{urlencode(query)}", body=body)
    answer = connection.getresponse()
    if answer.status == http.client.OK:
        return answer
    said = answer.read()
    try:
        problem = msgspec.json.decode(said, type=Problem)
    except msgspec.DecodeError:
        raise LocalError(f"mesh `{name}` answered {answer.status}: {said[:200].decode(errors='replace')}") from None
    kind = CannotStart if answer.status == CANNOT_START else LocalError
    raise kind(problem.what, problem.hint, where=problem.where.object)
