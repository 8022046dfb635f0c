"""How MeshConfig writes access logs: the log of the whole mesh, extension providers that write files, and the line itself.

A line that Envoy would refuse is an error here: it would take every listener of every proxy along.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from weft.api.commands import log_flaw
from weft.api.document import Path
from weft.api.reader import Fields
from weft.base.suggest import did_you_mean
from weft.model.access_log import Encoding, FileLog, LogProvider
from weft.model.settings import Settings

FILE = "envoyFileAccessLog"
BUILT_IN = "envoy"  # the provider that is there without being written; it takes the mesh's own format
STREAM = "/dev/stdout"
MOST_FORMAT = 65_536
# Other providers of access logs, to which nothing is sent yet.
ELSEWHERE = ("envoyHttpAls", "envoyTcpAls", "envoyOtelAls", "stackdriver")


def mesh_log(config: Fields) -> FileLog:
    """`accessLogFile` and how its lines look; without a path it is only the look."""
    encoding = Encoding(config.choice("accessLogEncoding", tuple(Encoding), default=Encoding.TEXT))
    written = config.text("accessLogFormat", most=MOST_FORMAT)
    if encoding is Encoding.JSON and written:
        try:
            fields = json.loads(written)
        except ValueError as error:
            fields = None
            what = f"`accessLogFormat` is not JSON: {error}"
            config.error("accessLogFormat", what, 'for example \'{"code": "%RESPONSE_CODE%"}\'')
        else:
            if not isinstance(fields, dict):
                config.error("accessLogFormat", "`accessLogFormat` must be a JSON object")
        written = _labels(config, "accessLogFormat", fields) if isinstance(fields, dict) else ""
    else:
        written = _line(config, "accessLogFormat", written)
    return FileLog(config.text("accessLogFile", most=4_096), encoding, written)


def file_log(provider: Fields, name: str, of_mesh: FileLog) -> FileLog:
    """`envoyFileAccessLog` of an extension provider."""
    fields = provider.fields(FILE)
    if fields is None:
        return FileLog()
    path = fields.text("path", default=STREAM, most=4_096)
    omit_empty = fields.boolean("omitEmptyValues") or False
    form = fields.fields("logFormat")
    if form is None:
        if name == BUILT_IN:
            return FileLog(path, of_mesh.encoding, of_mesh.format, omit_empty)
        return FileLog(path, omit_empty=omit_empty)
    if form.one_of("text", "labels") == "labels":
        labels = form.raw("labels")
        if not isinstance(labels, Mapping):
            form.error("labels", "`labels` must be a mapping", "from names to formats, such as code: '%RESPONSE_CODE%'")
            labels = {}
        return FileLog(path, Encoding.JSON, _labels(form, "labels", labels), omit_empty)
    return FileLog(path, Encoding.TEXT, _line(form, "text", form.text("text", most=MOST_FORMAT)), omit_empty)


def logs_by_default(config: Fields, of_mesh: FileLog, providers: tuple[LogProvider, ...]) -> Settings:
    """Settings with nothing but logs: providers that are named as the default, or the mesh's own file."""
    names = ()
    defaults = config.fields("defaultProviders")
    if defaults is not None:
        defaults.unsupported("metrics", "tracing")
        names = defaults.texts("accessLogging", most=255)
    if all(provider.name.lower() != BUILT_IN for provider in providers):
        providers = (*providers, LogProvider(BUILT_IN, FileLog(STREAM, of_mesh.encoding, of_mesh.format)))
    known = {provider.name.lower() for provider in providers}
    for index, name in enumerate(names):
        if defaults is not None and name.lower() not in known:
            hint = did_you_mean(name, [provider.name for provider in providers])
            defaults.warning(("accessLogging", index), f"no extension provider is called `{name}`: no log there", hint)
    settings = Settings(
        log_providers=providers,
        default_log_providers=names,
        listener_logs=not config.boolean("disableEnvoyListenerLog"),
    )
    if names:
        logs = tuple(log for name in names for log in settings.logs_of(name))
    else:
        logs = (of_mesh,) if of_mesh.path else ()
    return Settings(
        logs=logs,
        log_providers=providers,
        default_log_providers=names,
        listener_logs=settings.listener_logs,
    )


def _line(fields: Fields, name: str, line: str) -> str:
    what, hint = log_flaw(line)
    if what:
        fields.error(name, f"`{name}` is no line that Envoy can write: {what}", hint)
    return f"{line}\n" if line and not line.endswith("\n") else line


def _labels(fields: Fields, name: str, labels: Mapping[str, Any]) -> str:
    """As JSON in a fixed order, so that equal formats are equal; "" for the default ones."""
    for path, line in _lines((name,), labels):
        what, hint = log_flaw(line)
        if what:
            where = path if name == "labels" else (name,)
            fields.error(where, f"`{path[-1]}` holds nothing that Envoy can write: {what}", hint)
    return json.dumps(labels, default=str) if labels else ""


def _lines(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, held in value.items():
            yield from _lines((*path, str(name)), held)
    elif isinstance(value, (list, tuple)):
        for index, held in enumerate(value):
            yield from _lines((*path, index), held)
