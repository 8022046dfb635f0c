"""Which proxies write a line for each request or connection, where to, and how the line looks."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reporter(StrEnum):
    """Who tells of a request: the proxy of the caller, that of the called, or both."""

    CLIENT = "CLIENT"
    SERVER = "SERVER"
    BOTH = "CLIENT_AND_SERVER"


class Encoding(StrEnum):
    TEXT = "TEXT"
    JSON = "JSON"


class FileLog(msgspec.Struct, frozen=True, cache_hash=True):
    path: str = "/dev/stdout"
    encoding: Encoding = Encoding.TEXT
    format: str = ""  # with Envoy's commands; an object as JSON where that is the encoding; "": the default line
    omit_empty: bool = False  # leave out what has no value
    filter: str = ""  # a CEL expression; "": every request


class LogProvider(msgspec.Struct, frozen=True):
    """What a Telemetry names when it wants a log."""

    name: str
    log: FileLog | None = None  # None: of a sort that weft writes nothing to
