"""Access logs: which proxies write a line for each request or connection, where, and in which format."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reporter(StrEnum):
    """Which proxy writes the access log of a request: the client's, the server's, or both."""

    CLIENT = "CLIENT"
    SERVER = "SERVER"
    BOTH = "CLIENT_AND_SERVER"


class Encoding(StrEnum):
    TEXT = "TEXT"
    JSON = "JSON"


class FileLog(msgspec.Struct, frozen=True, cache_hash=True):
    path: str = "/dev/stdout"
    encoding: Encoding = Encoding.TEXT
    format: str = ""  # with Envoy's command operators, as JSON for the JSON encoding; "": the default line
    omit_empty: bool = False  # leave out fields without a value
    filter: str = ""  # a CEL expression; "": every request


class LogProvider(msgspec.Struct, frozen=True):
    """A log provider that a Telemetry can name. `log`: None if weft does not support the provider's type."""

    name: str
    log: FileLog | None = None
