"""Requests through a real Envoy to an application that returns what it received, and tables of the expected results."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from translate.live import app, pair
from translate.tokens import token


@dataclass
class Answer:
    status: int
    headers: dict
    body: str

    @property
    def line(self):
        """The request line as the application received it."""
        return self.body.split("\r\n", 1)[0]

    @property
    def seen(self):
        """The headers that the application received."""
        return _headers(self.body)


@dataclass
class Case:
    says: str
    headers: tuple = ()
    status: int = 200
    path: str = "/"
    method: str = "GET"
    why: str = ""  # Envoy's words, of a refusal
    seen: dict = field(default_factory=dict)  # headers at the application; None: not there
    line: str = ""


def bearer(*arguments, **more):
    return ("authorization", f"Bearer {token(*arguments, **more)}")


async def ask(port, path="/", headers=(), method="GET"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", "host: orders", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    try:
        head, _, body = (await asyncio.wait_for(reader.read(), 30)).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    return Answer(int(head.split(" ", 2)[1]), _headers(head), body)


def _headers(text):
    return dict(line.split(": ", 1) for line in text.split("\r\n")[1:] if ": " in line)


async def echo(reader, writer):
    with contextlib.suppress(asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(head) + head)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def guarded(*values, **more):
    """Run an application behind a proxy with these objects; yields the port on which a caller reaches it."""
    async with app(echo) as behind, pair(behind, *values, **more) as port:
        yield port


async def judge(cases, *values, **more):
    wrong = []
    async with guarded(*values, **more) as port:
        for case in cases:
            answer = await ask(port, case.path, case.headers, case.method)
            wrong += (f"{case.says}: {flaw}" for flaw in _flaws(case, answer))
    assert not wrong, "\n".join(wrong)


def _flaws(case, answer):
    if answer.status != case.status:
        yield f"{answer.status} instead of {case.status}, {answer.body}"
    elif case.why and answer.body != case.why:
        yield f"because `{answer.body}`"
    elif case.status == 401 and 'error="invalid_token"' not in answer.headers.get("www-authenticate", ""):
        yield f"www-authenticate is {answer.headers.get('www-authenticate')}"
    elif case.line and answer.line != case.line:
        yield f"the application saw {answer.line}"
    for name, wanted in case.seen.items():
        if answer.status == 200 and answer.seen.get(name) != wanted:
            yield f"{name} is {answer.seen.get(name)} at the application"
