"""Removes from the mesh's settings the access logs that Envoy could not write.

Input: the mesh's settings. Output: the settings without the log paths that the proxies' user may not open, and a
problem for each removed path. Reason: Envoy rejects every listener whose access log it cannot open, and a mesh without
an access log is better than no mesh.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity
from weft.model.access_log import LogProvider
from weft.model.names import where_of
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.model.settings import Settings
from weft.netns.view import closed_ancestors, may

_STREAMS = ("/dev/stdout", "/dev/stderr")
_HINT = "write the access log to /dev/stdout, and read it with: weft logs --proxy WORKLOAD"


def writable(settings: Settings) -> tuple[Settings, tuple[Problem, ...]]:
    """Return the settings without access logs that proxies cannot write, and a problem for each removed path."""
    logs = (*settings.logs, *(provider.log for provider in settings.log_providers if provider.log))
    paths = dict.fromkeys(log.path for log in logs if log.path not in _STREAMS)
    wrong = {path: why for path in paths if (why := _why_not(Path(path)))}
    if not wrong:
        return settings, ()
    where = where_of(settings.origin, "" if settings.origin else "mesh configuration")
    problems = (
        Problem(where, f"access log: {why}; nothing is written to {path}", _HINT, Severity.ERROR)
        for path, why in wrong.items()
    )
    kept = msgspec.structs.replace(
        settings,
        logs=tuple(log for log in settings.logs if log.path not in wrong),
        log_providers=tuple(
            LogProvider(provider.name) if provider.log and provider.log.path in wrong else provider
            for provider in settings.log_providers
        ),
    )
    return kept, tuple(problems)


def _why_not(path: Path) -> str:
    if not path.is_absolute():
        return f"`{path}` is not an absolute path"
    try:
        closed = closed_ancestors(PROXY_UID, PROXY_GID, path)
        if closed:
            return f"the proxies' user, UID {PROXY_UID}, may not enter {closed[0]}"
        if path.is_dir():
            return f"{path} is a directory"
        place, wanted = (path, 2) if path.exists() else (path.parent, 3)
        if not may(PROXY_UID, PROXY_GID, place, wanted):
            return f"the proxies' user, UID {PROXY_UID}, may not write to {place}"
    except OSError as error:
        return f"{error.filename or path}: {(error.strerror or str(error)).lower()}"
    return ""
