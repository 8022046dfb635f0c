"""Escapes unknown command operators in header values. A configured value may contain Envoy's command operators:
`%DOWNSTREAM_REMOTE_ADDRESS%`, `%REQ(x-user)%`.

Envoy rejects every route of a port for one unknown command, so such a command is sent as plain text instead. The known
names are those that Envoy 1.40 accepts in a header.
"""

from __future__ import annotations

import re

from weft.api.commands import BARE, WITH_PARAMETERS

_TOKEN = re.compile(r"%%|%(?P<name>[A-Z0-9_]+)(?P<given>\([^%()]*(?:%[^%()]*)*\))?(?::[0-9]+)?%")


def harmless(value: str) -> str:
    """Return the header value with every command that Envoy would reject escaped as plain text."""
    if "%" not in value:
        return value
    parts: list[str] = []
    end = 0
    for token in _TOKEN.finditer(value):
        parts.append(value[end : token.start()].replace("%", "%%"))
        parts.append(token[0] if token[0] == "%%" or _is_known(token) else token[0].replace("%", "%%"))
        end = token.end()
    return "".join((*parts, value[end:].replace("%", "%%")))


def _is_known(token: re.Match[str]) -> bool:
    if token["given"] is None:
        return token["name"] in BARE
    return token["name"] in WITH_PARAMETERS and token["given"] != "()"
