"""Reads the access log settings of MeshConfig: the log file of the whole mesh, extension providers that log to files,
and the log format.

A log format that Envoy would reject is an error here, because with it Envoy would reject every listener of every proxy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.api.commands import log_flaw
from weft.api.document import Path
from weft.api.reader import Fields, describe
from weft.base.suggest import did_you_mean
from weft.model.access_log import Encoding, FileLog, LogProvider

FILE = "envoyFileAccessLog"
ELSEWHERE = ("envoyHttpAls", "envoyTcpAls", "envoyOtelAls", "stackdriver")  # types not supported yet

_BUILT_IN = "envoy"  # the provider that exists without being declared; by default it has the mesh-wide format
_MOST_PATH = 4_096
_MOST_LINE = 65_536
_MOST_DEPTH = 20


class Logging(msgspec.Struct, frozen=True):
    """All access log settings of MeshConfig. `logs`: the logs of every proxy, unless a Telemetry overrides them.
    `providers`: the providers that a Telemetry can name. `defaults`: the names of the default providers."""

    logs: tuple[FileLog, ...]
    providers: tuple[LogProvider, ...]
    defaults: tuple[str, ...]


def read_file(fields: Fields, name: str) -> LogProvider:
    """Read `fields`, the `envoyFileAccessLog` of the extension provider `name`."""
    log = FileLog(fields.text("path", most=_MOST_PATH) or FileLog().path)
    log = msgspec.structs.replace(log, omit_empty=fields.boolean("omitEmptyValues") or False)
    form = fields.fields("logFormat")
    if form is None:
        return LogProvider(name, log)
    sort = form.one_of("text", "labels")
    if sort == "text":
        line = _line(form, "text", form.text("text", most=_MOST_LINE))
        return LogProvider(name, msgspec.structs.replace(log, format=line))
    if sort == "":
        form.lacks(
            "text",
            "labels",
            what="`logFormat` must have `text` or `labels`",
            hint="for the default JSON format, write `labels: {}`",
        )
        return LogProvider(name, log)
    labels = form.raw("labels")
    if not isinstance(labels, Mapping):
        form.error("labels", "`labels` must be a mapping", "map names to formats, such as code: '%RESPONSE_CODE%'")
        labels = {}
    line = _labels(form, ("labels",), labels)
    return LogProvider(name, msgspec.structs.replace(log, encoding=Encoding.JSON, format=line))


def read_logging(config: Fields, providers: tuple[LogProvider, ...]) -> Logging:
    of_mesh = _of_mesh(config)
    if all(provider.name.lower() != _BUILT_IN for provider in providers):
        providers = (*providers, LogProvider(_BUILT_IN, FileLog()))
    providers = tuple(_like(of_mesh, provider) for provider in providers)
    by_name = {provider.name.lower(): provider for provider in providers}
    defaults = config.fields("defaultProviders")
    names: tuple[str, ...] = ()
    if defaults is not None:
        defaults.unsupported("metrics", "tracing")
        names = defaults.texts("accessLogging", most=255)
        for index, name in enumerate(names):
            provider = by_name.get(name.lower())
            if provider is None:
                hint = did_you_mean(name, [provider.name for provider in providers])
                defaults.warning(("accessLogging", index), f"there is no access log provider `{name}`", hint)
            elif provider.log is None:
                what = f"the provider `{name}` is not supported: this version of weft writes access logs only to files"
                defaults.warning(
                    ("accessLogging", index), what, "use an `envoyFileAccessLog`, and collect the logs from its file"
                )
    if names:
        logs = (by_name[name.lower()].log for name in names if name.lower() in by_name)
        return Logging(tuple(log for log in logs if log), providers, names)
    return Logging((of_mesh,) if of_mesh.path else (), providers, ())


def _like(of_mesh: FileLog, provider: LogProvider) -> LogProvider:
    log = provider.log
    if provider.name != _BUILT_IN or log is None or log.format or log.encoding is not Encoding.TEXT:
        return provider
    return LogProvider(provider.name, msgspec.structs.replace(log, encoding=of_mesh.encoding, format=of_mesh.format))


def _of_mesh(config: Fields) -> FileLog:
    """Read `accessLogFile` of the MeshConfig, with its encoding and format. Without `accessLogFile` the result has an
    empty path."""
    path = config.text("accessLogFile", most=_MOST_PATH)
    encoding = Encoding(config.choice("accessLogEncoding", tuple(Encoding), default=Encoding.TEXT))
    written = config.text("accessLogFormat", most=_MOST_LINE)
    if encoding is Encoding.TEXT or not written:
        return FileLog(path, encoding, _line(config, "accessLogFormat", written))
    try:
        labels = json.loads(written)
    except (ValueError, RecursionError) as error:
        labels = error
    if not isinstance(labels, dict):
        why = f": {labels}" if isinstance(labels, Exception) else ""
        hint = """for example '{"code": "%RESPONSE_CODE%"}'"""
        config.error("accessLogFormat", f"`accessLogFormat` is not a JSON object{why}", hint)
        return FileLog(path, encoding)
    return FileLog(path, encoding, _labels(config, ("accessLogFormat",), labels))


def _line(fields: Fields, name: str, line: str) -> str:
    what, hint = log_flaw(line)
    if what:
        fields.error(name, f"Envoy rejects this log format: {what}", hint)
    return f"{line}\n" if line and not line.endswith("\n") else line


def _labels(fields: Fields, at: Path, labels: Mapping[str, Any]) -> str:
    """Return `labels`, the labels of a JSON log format, as JSON text. Return "", which stands for the default labels,
    if there are none, or if Envoy would reject them; the latter is reported as an error at the path `at`."""
    flaws = list(_flaws(at, labels))
    for path, what, hint in flaws:
        fields.error(path, f"Envoy rejects the log format of `{path[-1]}`: {what}", hint)
    return json.dumps(labels) if labels and not flaws else ""


def _flaws(path: Path, value: Any) -> Iterator[tuple[Path, str, str]]:
    if len(path) > _MOST_DEPTH:
        yield path, f"it is nested deeper than {_MOST_DEPTH} levels", ""
    elif isinstance(value, Mapping):
        for name, member in value.items():
            if not isinstance(name, str):
                yield (*path, str(name)), "the name of a label must be text", f'put it in quotes: "{name}"'
            else:
                yield from _flaws((*path, name), member)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _flaws((*path, index), member)
    elif isinstance(value, str):
        what, hint = log_flaw(value)
        if what:
            yield path, what, hint
    elif value is not None and not (isinstance(value, (bool, int, float)) and abs(value) < 1e15):
        yield path, f"{describe(value)} is not a JSON value", "put the value in quotes"
