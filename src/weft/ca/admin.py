"""The authority's admin socket, a file in the authority's directory. `weft ca rotate` connects to it to send
requests to the process that signs. Only root or the socket's owner can open it.

The request is one JSON object. The response is lines of JSON: a status for each phase until a rotation has ended, or
an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from weft.ca.authority import Authority
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase
from weft.ca.status import AuthorityStatus

log = logging.getLogger("weft.ca")

SOCKET = "authority.sock"
LONGEST_WAIT_SECONDS = 366 * 86_400
_LONGEST_LINE = 64 * 1024
_PATIENCE_SECONDS = 5.0


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    do: str  # status, rotate, switch
    propagation: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_SECONDS)] | None = None  # seconds
    follow: bool = False  # send every status until the rotation has ended


class CaReply(msgspec.Struct, frozen=True, omit_defaults=True):
    status: AuthorityStatus | None = None
    what: str = ""
    hint: str = ""


class AdminSocket:
    def __init__(self, authority: Authority, directory: Path) -> None:
        self._authority = authority
        self._path = directory / SOCKET
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Create the socket and listen on it. Raises OSError, for example if the directory is not writable."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()  # this process has the directory's lock, so no other process listens on the socket
        listener = socket.socket(socket.AF_UNIX)
        umask = os.umask(0o177)  # so that other users can never open the socket
        try:
            listener.bind(str(self._path))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(umask)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LONGEST_LINE)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                line = await reader.readline()
            await self._answer(line, writer)
        except (OSError, ValueError, TimeoutError):
            pass  # the client has disconnected, or sent no request
        except Exception:
            log.exception("the CA's admin socket could not answer a request")
        finally:
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        changed = asyncio.Event()
        unsubscribe = self._authority.subscribe(changed.set)
        try:
            wish = msgspec.json.decode(line, type=Wish)
            status = self._do(wish)
            await _send(writer, CaReply(status))
            while wish.follow and status.phase is not RotationPhase.STEADY:
                await changed.wait()
                changed.clear()
                if (now := self._authority.status()) != status:
                    status = now
                    await _send(writer, CaReply(status))
        except AuthorityError as error:
            await _send(writer, CaReply(None, error.problem.what, error.problem.hint))
        except msgspec.MsgspecError as error:
            await _send(
                writer,
                CaReply(
                    None,
                    f"invalid request: {error}",
                    "use the same version of weft for this command and for the process that signs",
                ),
            )
        finally:
            unsubscribe()

    def _do(self, wish: Wish) -> AuthorityStatus:
        if wish.do == "rotate":
            return self._authority.rotate(None if wish.propagation is None else timedelta(seconds=wish.propagation))
        if wish.do == "switch":
            return self._authority.switch()
        return self._authority.status()


def ask(directory: Path, wish: Wish) -> Iterator[AuthorityStatus]:
    """Send the request `wish` (status, rotate or switch) to the process that signs with the CA in `directory`, and
    yield each status that it returns: one, or with `wish.follow` one for each phase until the rotation has ended.
    Raises AuthorityError if the process rejects the request; ConnectionError or FileNotFoundError if no process
    listens."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(directory / SOCKET))
        line.sendall(msgspec.json.encode(wish) + b"\n")
        with line.makefile("rb") as lines:
            for response in lines:
                answer = msgspec.json.decode(response, type=CaReply)
                if answer.status is None:
                    raise AuthorityError(answer.what, answer.hint)
                yield answer.status


async def _send(writer: asyncio.StreamWriter, answer: CaReply) -> None:
    writer.write(msgspec.json.encode(answer) + b"\n")
    await writer.drain()
