"""Where proxies may write their access log: nowhere but where the proxy's own user may.

The mesh's settings come in. A path that Envoy could not open leaves them, with a problem that says why: Envoy refuses
every listener that writes to such a path, and a mesh without an access log is better than none.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity
from weft.envoy.command import PROXY_GID, PROXY_UID
from weft.model.names import where_of
from weft.model.settings import Settings
from weft.netns.view import closed_ancestors, may

_STREAMS = ("", "/dev/stdout", "/dev/stderr")
_HINT = "write it to /dev/stdout, and read it with: weft logs --proxy WORKLOAD"


def writable(settings: Settings) -> tuple[Settings, tuple[Problem, ...]]:
    """The settings as proxies can have them, and what is wrong with the rest."""
    why = "" if settings.access_log in _STREAMS else _why_not(Path(settings.access_log))
    if not why:
        return settings, ()
    where = where_of(settings.origin, "" if settings.origin else "mesh configuration")
    problem = Problem(where, f"accessLogFile: {why}; no access log is written", _HINT, Severity.ERROR)
    return msgspec.structs.replace(settings, access_log=""), (problem,)


def _why_not(path: Path) -> str:
    if not path.is_absolute():
        return f"`{path}` is not an absolute path"
    try:
        closed = closed_ancestors(PROXY_UID, PROXY_GID, path)
        if closed:
            return f"{closed[0]} is closed to the proxies' user, UID {PROXY_UID}"
        if path.is_dir():
            return f"{path} is a directory"
        place, wanted = (path, 2) if path.exists() else (path.parent, 3)
        if not may(PROXY_UID, PROXY_GID, place, wanted):
            return f"the proxies' user, UID {PROXY_UID}, may not write to {place}"
    except OSError as error:
        return f"{error.filename or path}: {(error.strerror or str(error)).lower()}"
    return ""
