"""Normalizes a request's path before it is matched: as in RFC 3986, with slashes merged or decoded where the
connection manager is configured so. Envoy uses Chromium's code for this, and the table of characters is
Chromium's."""

from __future__ import annotations

import re

from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_TO_ENCODE = re.compile(r'["<>^`{|}]|[^!-~]')
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_ENCODED_SLASH, _ENCODED_BACKSLASH = re.compile(r"%2[fF]"), re.compile(r"%5[cC]")
_DOTS_WITH_PARAMETERS = re.compile(r"(^|/)(\.{1,2});[^/]*")


def normalized(manager: HttpConnectionManager, target: str) -> str | None:
    """The normalized target of a request; None if Envoy rejects the request because of its path."""
    if "#" in target:
        return None
    path, mark, query = target.partition("?")
    action = manager.path_with_escaped_slashes_action
    if action in (HttpConnectionManager.UNESCAPE_AND_FORWARD, HttpConnectionManager.UNESCAPE_AND_REDIRECT):
        path = _ENCODED_BACKSLASH.sub(r"\\", _ENCODED_SLASH.sub("/", path))
    elif action == HttpConnectionManager.REJECT_REQUEST and (
        _ENCODED_SLASH.search(path) or _ENCODED_BACKSLASH.search(path)
    ):
        return None
    if manager.normalize_path.value:
        canonical = _canonical(path)
        if canonical is None:
            return None
        path = canonical
    if manager.merge_slashes:
        path = _merged(path)
    return f"{path}{mark}{query}"


def _canonical(path: str) -> str | None:
    """The path with `.` and `..` resolved and plain characters decoded; None for a path with an encoded NUL. Dots
    that are followed by parameters (`..;v=1`) count as dots if neither the dots nor the semicolon are encoded.
    Encoded dots are decoded after that."""
    path = _DOTS_WITH_PARAMETERS.sub(r"\1\2", path)
    if "%00" in path:
        return None
    path = _decoded(path.replace("\\", "/"))
    path = _TO_ENCODE.sub(_encoded, path)
    if not path.startswith("/"):
        path = f"/{path}"
    done: list[str] = []
    segments = path.split("/")[1:]
    for position, segment in enumerate(segments):
        if segment == "..":
            done = done[:-1]
        elif segment != ".":
            done.append(segment)
            continue
        if position == len(segments) - 1:
            done.append("")
    return "/" + "/".join(done)


def _decoded(path: str) -> str:
    """The path with the escapes of plain characters decoded. A percent sign that begins no escape is encoded as
    `%25` if the decoding would make it begin one."""
    result, lone, at = "", -1, 0  # `lone`: position in the result of the last percent sign that begins no escape
    while at < len(path):
        if path[at] != "%":
            result += path[at]
            at += 1
        elif (escape := _ENCODED.match(path, at)) is None:
            lone = len(result)
            result += "%"
            at += 1
        else:
            at += 3
            character = chr(int(escape[0][1:], 16))
            if character not in _PLAIN:
                result += escape[0]
                continue
            result += character
            begun = result[lone:]
            if lone >= 0 and _ENCODED.fullmatch(begun + path[at : at + 3 - len(begun)]):
                result = f"{result[:lone]}%25{begun[1:]}"
    return result


def _encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _merged(path: str) -> str:
    if "//" not in path:
        return path
    inner = "/".join(part for part in path.split("/") if part)
    return f"{'/' if path.startswith('/') else ''}{inner}{'/' if path.endswith('/') else ''}"
