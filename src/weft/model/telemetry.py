"""Telemetry: what proxies report about their traffic. Supported so far: access logs, by mesh, namespace and
workload.

The three levels are evaluated in this order, and at each level the oldest object decides. A level that names providers
replaces the providers of the levels before it. A level that names none changes the filter of those providers, or
disables them. A setting for clients does not affect servers, and vice versa.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from weft.model.access_log import FileLog, Reporter
from weft.model.names import Labels, Origin
from weft.model.settings import Settings


class AccessLogging(msgspec.Struct, frozen=True):
    reporter: Reporter = Reporter.BOTH
    providers: tuple[str, ...] = ()  # extension providers; (): those of the level above
    disabled: bool | None = None  # None: not disabled
    filter: str = ""  # a CEL expression; "": every request


class Telemetry(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    selector: Labels = ()
    access_logging: tuple[AccessLogging, ...] = ()
    targets: tuple[str, ...] = ()  # gateways that the object applies to instead of workloads: KIND NAME
    created: str = ""
    origin: Origin | None = None


Levels = tuple[tuple[AccessLogging, ...], ...]  # the levels mesh, namespace and workload, without those that have none

_ACCESS_LOG_FILE = ""  # stands for the mesh's log that has no provider name


def settings_for(settings: Settings, telemetries: Iterable[Telemetry], namespace: str, reporter: Reporter) -> Settings:
    """The mesh settings, with the access logs that some proxies of a namespace write as client or as server
    (`reporter`). `telemetries`: the Telemetries that select these proxies: those of the mesh first, then by age."""
    return _settled(settings, _levels(telemetries, settings.root_namespace, namespace), reporter)


def _levels(telemetries: Iterable[Telemetry], root_namespace: str, namespace: str) -> Levels:
    chosen: dict[tuple[str, bool], Telemetry] = {}
    for telemetry in telemetries:
        chosen.setdefault((telemetry.namespace, bool(telemetry.selector or telemetry.targets)), telemetry)
    # A selector applies only in its own namespace, even in the root namespace.
    order = dict.fromkeys(((root_namespace, False), (namespace, False), (namespace, True)))
    return tuple(chosen[place].access_logging for place in order if place in chosen and chosen[place].access_logging)


@lru_cache(maxsize=1024)  # groups with the same logs share one value, and everything computed from it
def _settled(settings: Settings, levels: Levels, reporter: Reporter) -> Settings:
    return msgspec.structs.replace(settings, reporter=reporter, logs=_logs(settings, levels, reporter))


def _logs(settings: Settings, levels: Levels, reporter: Reporter) -> tuple[FileLog, ...]:
    meant = tuple(tuple(rule for rule in level if rule.reporter in (reporter, Reporter.BOTH)) for level in levels)
    if not any(meant):
        return settings.logs
    inherited = settings.default_log_providers or (_ACCESS_LOG_FILE,)
    in_scope = inherited
    for level in meant:
        in_scope = tuple(name for rule in level for name in rule.providers) or in_scope
    filters: dict[str, str] = {}
    written: dict[str, None] = {}
    for rule in (rule for level in meant for rule in level):
        inherited = rule.providers or inherited
        for name in inherited:
            if rule.providers or rule.filter:
                filters[name] = rule.filter
            if name not in in_scope:
                continue
            if rule.disabled:
                written.pop(name, None)
            else:
                written[name] = None
    return tuple(
        msgspec.structs.replace(log, filter=filters.get(name, ""))
        for name in written
        for log in (settings.logs if name == _ACCESS_LOG_FILE else settings.logs_of(name))
    )
