"""What proxies report about the traffic they carry. So far: access logs, by mesh, namespace and workload."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import Labels, Origin


class Reporter(StrEnum):
    """Which proxies a rule means: those of callers, those of the called, or both."""

    CLIENT = "CLIENT"
    SERVER = "SERVER"
    BOTH = "CLIENT_AND_SERVER"


class AccessLogging(msgspec.Struct, frozen=True):
    reporter: Reporter = Reporter.BOTH
    providers: tuple[str, ...] = ()  # extension providers; (): those of the level above
    disabled: bool | None = None  # None: as the level above
    filter: str = ""  # a CEL expression; "": every request


class Telemetry(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    selector: Labels = ()
    access_logging: tuple[AccessLogging, ...] = ()
    created: str = ""
    origin: Origin | None = None
