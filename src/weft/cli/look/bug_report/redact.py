"""Redacts secrets by their names: removes from a document the values of fields called password, token, cookie, key
and the like. Log lines are redacted in the same way, and lose the query strings of URLs. `archive.py` calls this
module.

Rule: the name of a field decides, not the look of its value. In Envoy's pairs `{"key": …, "value": …}`, the content
of `key` counts as the name. From URLs, every query string is removed, and the user with the password.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

REDACTED = "[redacted]"
DEEPEST = 200  # levels of a document; deeper values are redacted

# `key` counts only at the end of a longer name: `x-api-key`, `privateKey`, but not `key`, `keys` or `keepalive`.
_SECRET = re.compile(
    r"(?i:authorization|cookie|token|secret|passw|passphrase|pwd|credential|bearer|session[-_]?id|signature|dsn$|(?:^|[-_])auth$)"
    r"|(?i:[a-z0-9][-_./ ]?key$|apikey)"
)
# Names that match _SECRET and are not secret: names of objects and files, settings, and fields of Kubernetes and Istio.
_OPEN = re.compile(
    r"(?i)(name|names|namespace|path|file|filename|type|url|uri|specifier|config|configs|ttl|duration|source|sources"
    r"|params|headers?|prefix|prefixes|location|locations|count|audience|audiences|policy|rules?)$"
    r"|(?i:^(routing|hash|header|metadata|filter_metadata|runtime|public|partition|stat|map|topology|descriptor)[-_]?key$)"
    r"|(?i:^(object|primary|foreign|sort)[-_]?key$)"
)
_NAMES = ("key", "name", "header_name", "headerName")
# Fields that hold the value of a named pair, or the value below a secret name: also matchers of Envoy and Istio, and
# Envoy's data sources.
_VALUES = frozenset(
    (
        *("value", "raw_value", "rawValue", "string_value", "stringValue", "inline_string", "inline_bytes"),
        *("values", "notValues"),
        *("exact", "prefix", "suffix", "contains", "regex", "string_match", "stringMatch", "inlineString"),
        *("exact_match", "prefix_match", "suffix_match", "contains_match", "safe_regex_match"),
    )
)
# Outsiders can write to a log. So each of these patterns looks at a letter only a few times, however long the line is.
# This one finds a query string after the path or host of a URL.
_QUERY = re.compile(rb"(?<![^\s\"'?\\<>])(?=[^\s\"'?\\<>/]*/)([^\s\"'?\\<>]*+\?)[^\s\"'\\<>]+")
# Userinfo before the host of a URL. An @ in a path does not match.
_USER = re.compile(rb"(://)[^\s/?#\"'\\<>]+@")

# Names before their values in log lines: Envoy logs headers as 'x-api-key', 'abc' at debug level; people write
# x-api-key: abc, and programs password=abc. A name after a dot, as in a statistic, is not a secret.
_SCHEME = rb"(?:basic|bearer|digest) "
_TELLING = rb"(?=[\w-]*?(?:auth|cookie|token|secret|pass|pwd|credential|bearer|session|signature|dsn|key))[\w-]++"
_QUOTED = re.compile(rb"(?i)('(%s)'[,:] ?')([^'\r\n]+)" % _TELLING)
_LINE = re.compile(rb"(?i)((?<![\w./-])(%s)[\"']?(?:=|:) *[\"']?)(?!%s)([^\s\"',;&]+)" % (_TELLING, _SCHEME))
# Headers whose values contain spaces.
_WHOLE = re.compile(
    rb"(?i)((?<![\w./-])(?:(?:proxy-)?authorization: *(?:%s)?|(?:set-)?cookie: *))([^\r\n\"']+)" % _SCHEME
)
_YAML = re.compile(r"^[ \t]*(?:- +)*[\w.\"'/-]+:(?:\s|$)", re.MULTILINE)
_REFERRED = re.compile(r"(?:^|[\s\[{,])\*[^\s*]")  # a YAML alias
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # reads every value as text, so no value is invalid


def is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _OPEN.search(name)


def redacted(value: Any, depth: int = 0) -> Any:
    """Return a copy of the document `value` without secrets. `depth` is its level in the whole document; a value
    deeper than DEEPEST is redacted whole."""
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
    """Return `data` with all secrets redacted. `data` may be a JSON document, a log whose lines may be JSON, or any
    other text."""
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
            lambda match: match[1] + REDACTED.encode() if is_secret(match[2].decode()) else match[0], data
        )
    return data


def _without_url_secrets(data: bytes) -> bytes:
    """Return `data` with the query strings and the userinfo (`user:password@`) of all URLs redacted."""
    return _USER.sub(rb"\1" + REDACTED.encode() + b"@", _QUERY.sub(rb"\1" + REDACTED.encode(), data))


def _of_name(name: str, value: Any, depth: int) -> Any:
    """Return `value` without secrets; `name` is the name of its field, `depth` its level in the whole document. If the
    name is that of a secret, a string or a list of strings is redacted. If the value is an object, such as
    `tokenParams` or a reference to a Secret, the names of its own fields decide."""
    if name in ("regex", "safe_regex") and isinstance(value, str):
        return value  # in a regular expression, `?` does not begin a query
    if is_secret(name):
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            return _blank(value)
        if isinstance(value, dict):
            kept = redacted(value, depth + 1)
            return {key: _blank(each) if key in _VALUES else each for key, each in kept.items()}
    return redacted(value, depth + 1)


def _is_secret_pair(value: dict[str, Any]) -> bool:
    """Return whether the object is a pair of a name and a value, such as a header or a variable, and the name is that
    of a secret. The harmless names in _OPEN count as secret here: a value redacted by mistake does no harm."""
    # In a condition of a policy, the header's name is in brackets: request.headers[x-api-key].
    return any(isinstance(value.get(name), str) and _SECRET.search(value[name].rstrip("]")) for name in _NAMES)


def _blank(value: Any) -> Any:
    """Return the value with every string redacted. The structure is kept, so that a reader sees whether a field was
    set."""
    if isinstance(value, dict):
        return {name: _blank(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_blank(each) for each in value]
    return REDACTED if isinstance(value, str) and value else value


def _text(text: str, depth: int) -> str:
    if text[:1] in ("{", "["):  # JSON inside a string: JSON Web Keys, annotations
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
    """Return the YAML documents in a text; empty if the text is not YAML, is a single line, or contains an alias."""
    # Aliases could expand to a very large document.
    if "\n" not in text or not _YAML.search(text) or _REFERRED.search(text):
        return []
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return documents if all(isinstance(each, dict | list) or not each for each in documents) else []
