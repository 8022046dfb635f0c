"""What a name says about its value: documents come in as plain data, and leave without the values of whatever is called
a password, a token, a cookie or a key; lines of access logs leave without queries. `bug_report_bundle.py` asks.

Rule: names decide, not how a value looks; Envoy's pairs `{"key": …, "value": …}` have their name in a value.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

REDACTED = "[redacted]"
DEEPEST = 200  # of a document; what is deeper is not shown

# `key` only as the end of a name of several words: `x-api-key`, `privateKey`, and not `key`, `keys` or `keepalive`.
_SECRET = re.compile(
    r"(?i:authorization|cookie|token|secret|passw|passphrase|pwd|credential|bearer|session[-_]?id|signature|dsn$|(?:^|[-_])auth$)"
    r"|(?i:[a-z0-9][-_./ ]?key$|apikey)"
)
# What is called so and is no secret: names of objects and of files, settings, and what Kubernetes and Istio write.
_OPEN = re.compile(
    r"(?i)(name|names|namespace|path|file|filename|type|url|uri|specifier|config|configs|ttl|duration|source|sources"
    r"|params|headers?|prefix|prefixes|location|locations|count|audience|audiences|policy|rules?)$"
    r"|(?i:^(routing|hash|header|metadata|filter_metadata|runtime|public|partition|stat|map|topology|descriptor)[-_]?key$)"
    r"|(?i:^(object|primary|foreign|sort)[-_]?key$)"
)
_NAMES = ("key", "name", "header_name", "headerName")
# Under which a value stands beside its name, or under it: also Envoy's and Istio's matches, and Envoy's data sources.
_VALUES = frozenset(
    (
        *("value", "raw_value", "rawValue", "string_value", "stringValue", "inline_string", "inline_bytes"),
        *("exact", "prefix", "suffix", "contains", "regex", "string_match", "stringMatch", "inlineString"),
        *("exact_match", "prefix_match", "suffix_match", "contains_match", "safe_regex_match"),
    )
)
# A query, in a path or in a URL within a line; what precedes is a path's or a host's.
_QUERY = re.compile(rb"(/[^\s\"'?\\<>]*\?)[^\s\"'\\<>]+")

# As Envoy's log has headers when it says much: 'x-api-key', 'abc'; and as people write them: x-api-key: abc.
_PAIR = re.compile(rb"(?i)('[\w-]*(?:authorization|cookie|token|secret|passw|api-?key)[\w-]*'[,:] ?')[^'\r\n]*")


def is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _OPEN.search(name)


def redacted(value: Any, depth: int = 0) -> Any:
    """The same document; nothing in it is changed in place."""
    if depth > DEEPEST:
        return REDACTED
    if isinstance(value, list):
        return [redacted(each, depth + 1) for each in value]
    if isinstance(value, str):
        return _text(value, depth)
    if not isinstance(value, dict):
        return value
    hidden = _is_secret_pair(value)
    return {
        name: _blank(each) if hidden and name in _VALUES else _of_name(str(name), each, depth)
        for name, each in value.items()
    }


def without_named_secrets(data: bytes) -> bytes:
    """A JSON document, a log whose lines are some, or any other text."""
    if data[:1] in (b"{", b"["):
        try:
            document = msgspec.json.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        else:
            kept = redacted(document)
            if kept == document:
                return data
            encoded = msgspec.json.encode(kept)
            return msgspec.json.format(encoded, indent=2) if b"\n" in data.strip() else encoded
    if b"\n" not in data:
        return _PAIR.sub(rb"\1" + REDACTED.encode(), without_queries(data))
    return b"\n".join(without_named_secrets(line) for line in data.split(b"\n"))


def without_queries(data: bytes) -> bytes:
    """Lines of a log: what follows `?` in paths and URLs goes."""
    return _QUERY.sub(rb"\1" + REDACTED.encode(), data)


def _of_name(name: str, value: Any, depth: int) -> Any:
    """A structure under such a name (`tokenParams`, a reference to a Secret) has names of its own; of a list of words
    every one is a secret."""
    if name in ("regex", "safe_regex") and isinstance(value, str):
        return value  # in which `?` is no query
    if is_secret(name):
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            return _blank(value)
        if isinstance(value, dict):
            kept = redacted(value, depth + 1)
            return {key: _blank(each) if key in _VALUES else each for key, each in kept.items()}
    return redacted(value, depth + 1)


def _is_secret_pair(value: dict[str, Any]) -> bool:
    """Of headers and variables, whatever else their names say: nobody misses the value of one that is none."""
    return any(isinstance(value.get(name), str) and _SECRET.search(value[name]) for name in _NAMES)


def _blank(value: Any) -> Any:
    """Its shape stays, for a reader who asks whether something was set at all."""
    if isinstance(value, dict):
        return {name: _blank(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_blank(each) for each in value]
    return REDACTED if isinstance(value, str) and value else value


def _text(text: str, depth: int) -> str:
    if text[:1] in ("{", "["):  # a document within a document: JSON Web Keys, annotations
        try:
            document = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        else:
            kept = redacted(document, depth + 1)
            return text if kept == document else msgspec.json.encode(kept).decode()
    if "?" not in text:
        return text
    return without_queries(text.encode("utf-8", "replace")).decode()
