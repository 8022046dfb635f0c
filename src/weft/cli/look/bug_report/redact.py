"""What a name says about its value: documents come in as plain data, and leave without the values of whatever is called
a password, a token, a cookie or a key; lines of logs too, and without queries. `archive.py` asks.

Rule: names decide, not how a value looks; Envoy's pairs `{"key": …, "value": …}` have their name in a value. Of URLs,
queries go whatever they are called, and users with their passwords.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

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
        *("values", "notValues"),
        *("exact", "prefix", "suffix", "contains", "regex", "string_match", "stringMatch", "inlineString"),
        *("exact_match", "prefix_match", "suffix_match", "contains_match", "safe_regex_match"),
    )
)
# Strangers write what is in a log: each of these looks at a letter a few times, however long the line is.
# A query, in a path or in a URL within a line; what precedes is a path's or a host's.
_QUERY = re.compile(rb"(?<![^\s\"'?\\<>])(?=[^\s\"'?\\<>/]*/)([^\s\"'?\\<>]*+\?)[^\s\"'\\<>]+")
# Before the host of a URL; in a path, an @ is none.
_USER = re.compile(rb"(://)[^\s/?#\"'\\<>]+@")

# In lines, a name before its value: 'x-api-key', 'abc' is how Envoy's log has headers when it says much; people write
# x-api-key: abc, and programs password=abc. Of a name with dots before it, such as a statistic's, none is a secret.
_SCHEME = rb"(?:basic|bearer|digest) "
_TELLING = rb"(?=[\w-]*?(?:auth|cookie|token|secret|pass|pwd|credential|bearer|session|signature|dsn|key))[\w-]++"
_QUOTED = re.compile(rb"(?i)('(%s)'[,:] ?')([^'\r\n]+)" % _TELLING)
_LINE = re.compile(rb"(?i)((?<![\w./-])(%s)[\"']?(?:=|:) *[\"']?)(?!%s)([^\s\"',;&]+)" % (_TELLING, _SCHEME))
# Which have several words.
_WHOLE = re.compile(
    rb"(?i)((?<![\w./-])(?:(?:proxy-)?authorization: *(?:%s)?|(?:set-)?cookie: *))([^\r\n\"']+)" % _SCHEME
)
_YAML = re.compile(r"^[ \t]*(?:- +)*[\w.\"'/-]+:(?:\s|$)", re.MULTILINE)
_REFERRED = re.compile(r"(?:^|[\s\[{,])\*[^\s*]")  # in YAML, to another part of it
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # takes every value for text: nothing in it can be wrong


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
        return _line(data)
    return b"\n".join(without_named_secrets(line) for line in data.split(b"\n"))


def _line(data: bytes) -> bytes:
    hidden = rb"\1" + REDACTED.encode()
    data = _WHOLE.sub(hidden, _without_url_secrets(data))
    for pattern in (_QUOTED, _LINE):
        data = pattern.sub(
            lambda found: found[1] + REDACTED.encode() if is_secret(found[2].decode()) else found[0], data
        )
    return data


def _without_url_secrets(data: bytes) -> bytes:
    """What follows `?` in paths and URLs, and who somebody says to be in one."""
    return _USER.sub(rb"\1" + REDACTED.encode() + b"@", _QUERY.sub(rb"\1" + REDACTED.encode(), data))


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
    # A condition of a policy has its header's name in brackets: request.headers[x-api-key].
    return any(isinstance(value.get(name), str) and _SECRET.search(value[name].rstrip("]")) for name in _NAMES)


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
    documents = _settings(text)
    kept = redacted(documents, depth + 1)
    if kept != documents:
        return yaml.safe_dump_all(kept, sort_keys=False, allow_unicode=True)
    return text if documents else _line(text.encode("utf-8", "replace")).decode()


def _settings(text: str) -> list[Any]:
    """The documents of YAML; none if it is something else."""
    # One that refers to parts of itself could be very large.
    if "\n" not in text or not _YAML.search(text) or _REFERRED.search(text):
        return []
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return documents if all(isinstance(each, dict | list) or not each for each in documents) else []
