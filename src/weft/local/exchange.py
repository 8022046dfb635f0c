"""Sends one HTTP/1.0 request over a Unix socket and reads the response. HTTP/1.0 is used because its responses are
never chunked: a response ends after its Content-Length, or with the connection.

Rule: every command loads this module, so it imports little. http.client would load the e-mail and TLS modules, which
takes longer than any request.
"""

from __future__ import annotations

import socket
from types import TracebackType

_LONGEST_LINE = 65_536
_MOST_LINES = 100


class NoAnswer(Exception):
    """The peer did not send an HTTP response, or the response is incomplete."""


class Exchange:
    """A connection for one request. `timeout`: the longest time in seconds without receiving a byte."""

    def __init__(self, path: str, timeout: float) -> None:
        """Connect to the Unix socket at `path`. Raises OSError. `timeout`: as for the class."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise
        self._answer = self._socket.makefile("rb")
        self._length: int | None = None  # None: the body ends with the connection

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._answer.close()
        self._socket.close()

    def ask(self, method: str, target: str, body: bytes = b"") -> int:
        """Send a request with this method, target (path and query of the URL) and body, read the response's headers,
        and return its status. Raises OSError, or NoAnswer."""
        head = f"{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode("ascii") + body)
        words = self._line().split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise NoAnswer("the response is not HTTP")
        for _ in range(_MOST_LINES):
            line = self._line().strip()
            if not line:
                return int(words[1])
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                self._length = int(value)
        raise NoAnswer("the response has too many headers")

    def read(self) -> bytes:
        """Return the whole body of the response. Raises OSError, or NoAnswer."""
        if self._length is None:
            return self._answer.read()
        body = self._answer.read(self._length)
        if len(body) < self._length:
            raise NoAnswer(f"the response ended after {len(body)} of {self._length} bytes")
        return body

    def readline(self) -> bytes:
        """Return the next line of the response's body, or b"" after the last line. Raises OSError."""
        return self._answer.readline()

    def wait_for_ever(self) -> None:
        self._socket.settimeout(None)

    def _line(self) -> bytes:
        line = self._answer.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise NoAnswer("the response is incomplete" if len(line) < _LONGEST_LINE else "a header line is too long")
        return line
