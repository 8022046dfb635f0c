"""Sends requests of the command line to a running mesh over the mesh's Unix socket, and returns the answers.

The calls block on purpose: a command sends one request and prints the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from weft.base.ambiguous import AMBIGUOUS, Ambiguous
from weft.base.problem import Problem
from weft.local.error import CannotStart, LocalError, NoSuchMesh
from weft.local.exchange import Exchange, NoAnswer
from weft.local.run_directory import socket_of
from weft.local.status import CANNOT_START, Entrance, MeshStatus

if TYPE_CHECKING:  # this import loads all of X.509, which most commands do not need
    from weft.ca.status import AuthorityStatus

_TIMEOUT = 10.0  # seconds without receiving a byte
_OK = 200


def fetch_status(name: str) -> MeshStatus:
    return msgspec.json.decode(_ask(name, "GET", "/status"), type=MeshStatus)


def fetch_problems(name: str) -> tuple[Problem, ...]:
    return msgspec.json.decode(_ask(name, "GET", "/problems"), type=tuple[Problem, ...])


def fetch_admin(name: str, pod: str, path: str, query: dict[str, str] | None = None, *, method: str = "GET") -> bytes:
    """Return the unchanged answer of the admin API of the pod's Envoy to a request for `path` with this query. `name`:
    the mesh. The mesh allows the method POST only for `/logging`, which sets log levels."""
    return _ask(name, method, "/admin", {"pod": pod, "path": path} | (query or {}))


def fetch_debug(name: str, page: str, query: dict[str, str] | None = None, question: bytes = b"") -> bytes:
    """Return the control plane's answer for the debug page `page`, in the format of Istio's /debug/PAGE. `question`: a
    request body, for requests that are too long for a query string."""
    return _ask(name, "POST" if question else "GET", f"/debug/{page}", query, question)


def fetch_entrance(name: str, pod: str, command: Sequence[str]) -> Entrance:
    """Return the program, arguments and environment to pass to os.execve in order to run `command` in a pod. `pod` is
    the name of a pod, or of a workload: then one of its pods is used, a ready one if there is one."""
    answer = _ask(name, "POST", "/exec", {"pod": pod}, body=msgspec.json.encode(list(command)))
    return msgspec.json.decode(answer, type=Entrance)


def fetch_ca(name: str) -> AuthorityStatus:
    """Return the state of the mesh's CA: its roots, and the progress of a rotation."""
    from weft.ca.status import AuthorityStatus

    return msgspec.json.decode(_ask(name, "GET", "/ca"), type=AuthorityStatus)


def rotate_ca(name: str, propagation: timedelta | None = None) -> AuthorityStatus:
    """Start the rotation of a mesh's CA to a new root and return the CA's state. The new root signs certificates after
    `propagation`; `fetch_ca` returns the progress."""
    from weft.ca.status import AuthorityStatus

    query = {} if propagation is None else {"propagation": str(propagation.total_seconds())}
    return msgspec.json.decode(_ask(name, "POST", "/ca/rotate", query), type=AuthorityStatus)


def read_logs(
    name: str, pod: str, *, follow: bool = False, proxy: bool = False, lines: int | None = None
) -> Iterator[str]:
    """Yield the log lines of a pod's app, or with `proxy` those of its Envoy. `name`: the mesh. `lines`: how many of
    the last lines to yield; None for all. `follow`: also yield new lines as they are written, until the pod ends."""
    query = {"pod": pod} | ({"follow": "1"} if follow else {}) | ({"stream": "proxy"} if proxy else {})
    with _connect(name) as exchange:
        try:
            _request(exchange, name, "GET", "/logs", query | ({} if lines is None else {"lines": str(lines)}))
            if follow:
                exchange.wait_for_ever()
            while line := exchange.readline():
                yield line.decode(errors="replace").rstrip("\n")
        except (NoAnswer, OSError):
            return  # the mesh has stopped, and its logs are deleted


def ask_at(path: Path, url: str, query: dict[str, str] | None = None, question: bytes = b"") -> bytes:
    """Send a request to the `weft control` whose socket is at `path`, and return the body of its answer. `url` is
    the path of the requested page, `query` its query string. `question`: a request body, for requests that are
    too long for a query string."""
    try:
        with Exchange(str(path), _TIMEOUT) as exchange:
            _request(exchange, str(path), "POST" if question else "GET", url, query or {}, question)
            return exchange.read()
    except PermissionError as error:
        raise LocalError(
            f"{path}: permission denied", "only root and the user that runs weft control may connect"
        ) from error
    except (NoAnswer, OSError) as error:
        hint = f"check that it is running: weft control --debug {path.parent}"
        raise LocalError(f"weft control does not answer at {path}: {error}", hint) from error


def _ask(name: str, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    with _connect(name) as exchange:
        try:
            _request(exchange, name, method, path, query or {}, body)
            return exchange.read()
        except (NoAnswer, OSError) as error:
            hint = f"the mesh may be busy: try again, or stop it and all its pods: weft down {name}"
            raise LocalError(f"mesh `{name}` does not answer: {error}", hint) from error


def _connect(name: str) -> Exchange:
    try:
        return Exchange(str(socket_of(name)), _TIMEOUT)
    except PermissionError as error:
        raise LocalError(f"{socket_of(name)}: permission denied", "run as root: sudo weft …") from error
    except OSError as error:
        raise NoSuchMesh(name) from error


def _request(exchange: Exchange, name: str, method: str, path: str, query: dict[str, str], body: bytes = b"") -> None:
    """Send a request with this method, path, query and body on the connection `exchange`, and return when the body of a
    200 answer can be read. For any other status, raise the corresponding error. `name`: the mesh, for the error's
    message."""
    status = exchange.ask(method, f"{path}?{urlencode(query)}", body)
    if status == _OK:
        return
    body_of_problem = exchange.read()
    try:
        problem = msgspec.json.decode(body_of_problem, type=Problem)
    except msgspec.DecodeError:
        raise LocalError(f"mesh `{name}` answered {status}: {body_of_problem[:200].decode(errors='replace')}") from None
    if status == AMBIGUOUS:
        raise Ambiguous(problem)
    kind = CannotStart if status == CANNOT_START else LocalError
    raise kind(problem.what, problem.hint, where=problem.where.object)
