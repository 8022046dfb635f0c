"""Reads Envoy's /config_dump and /clusters, and gives access to their sections and fields.

Input: bytes from a proxy, or from a file that a user has saved. Output: JSON documents whose sections are found by
type; field names may be in snake_case or camelCase. Rules: an unknown type or a missing field is no error, because
dumps of other Envoy versions are read too. `read` removes every private key.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from weft.envoy.binary import EnvoyError

CLUSTERS = "ClustersConfigDump"
LISTENERS = "ListenersConfigDump"
ROUTES = "RoutesConfigDump"
SECRETS = "SecretsConfigDump"
BOOTSTRAP = "BootstrapConfigDump"
ENDPOINTS = "EndpointsConfigDump"
EXTENSIONS = "EcdsConfigDump"

# The field mask for each section: the whole dump of a large mesh takes seconds.
MASKS = {
    CLUSTERS: "dynamic_active_clusters,dynamic_warming_clusters,static_clusters",
    LISTENERS: "dynamic_listeners,static_listeners",
    ROUTES: "dynamic_route_configs,static_route_configs",
    SECRETS: "dynamic_active_secrets,dynamic_warming_secrets",
    BOOTSTRAP: "bootstrap,last_updated",
}

_REDACTED = "[redacted]"  # the text that Envoy itself uses
# Fields that Envoy's API marks as sensitive. Envoy redacts them itself, but a file may come from another source.
_SENSITIVE = frozenset(
    {"private_key", "private_key_provider", "pkcs12", "password", "session_ticket_keys", "generic_secret"}
    | {"hmac_secret", "token_secret", "client_secret", "auth_password", "auth_passwords", "secret_access_key"}
)
_MOST_DIGITS = 20  # the most digits of a 64-bit number
_SHORTEST_KEY = 48  # characters; a PEM header and footer alone are almost this long
_BASE64 = re.compile(r"[A-Za-z0-9+/]{48}")  # how base64 begins; other long texts have a dot or space there


Told = Callable[[str, str], str]  # (name of a resource, path of a part in it) → the object that created the part
WHY = ("WHY",)


class DumpTable(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Dump(msgspec.Struct, frozen=True):
    document: dict[str, Any]

    def sections(self, kind: str) -> list[dict[str, Any]]:
        """Return the sections of the dump whose type ends in `kind`, such as `ClustersConfigDump`. Envoy splits a large
        section into several."""
        return [each for each in items(self.document, "configs") if text(each, "@type").endswith(f".{kind}")]

    def section(self, kind: str) -> dict[str, Any]:
        sections = self.sections(kind)
        if not sections:
            raise EnvoyError(f"the dump has no {kind}", "take a complete dump: curl -s localhost:15000/config_dump")
        return sections[-1]

    def messages(self, kind: str, *paths: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Yield the messages at `paths` in all sections whose type ends in `kind`. The first name of a path is that of
        a list in the section; the other names lead to a field in each item of that list. For example,
        `("dynamic_active_clusters", "cluster")` yields the `cluster` of each item of `dynamic_active_clusters`."""
        for section in self.sections(kind):
            for listed, *inner in paths:
                for item in items(section, listed):
                    if isinstance(message := at(item, *inner), dict):
                        yield message


def read(content: bytes, *, where: str = "") -> Dump:
    """Parse the response of /config_dump or of /clusters?format=json, and redact private keys. `where` is shown in
    errors."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "take a dump from Envoy's admin API: curl -s localhost:15000/config_dump"
        raise EnvoyError(f"the dump is not JSON: {error}", hint, where=where) from error
    if not isinstance(document, dict):
        raise EnvoyError(
            "the JSON is not a dump of Envoy", "take one: curl -s localhost:15000/config_dump", where=where
        )
    cleaned = without_keys(document)
    return Dump(cleaned)


def without_keys(value: Any) -> Any:
    """Return `value` with `[redacted]` in all fields that Envoy's API marks as sensitive and in all texts that
    contain a private key."""
    if isinstance(value, dict):
        return {
            name: _redacted(each, name) if _is_sensitive(name) else without_keys(each) for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_keys(each) for each in value]
    return _REDACTED if isinstance(value, str) and _has_key(value) else value


def at(value: Any, *path: str) -> Any:
    """Return the field at `path`, or None. The document may spell field names in snake_case, as Envoy's API, or in
    camelCase, as the JSON mapping of protobuf."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value[name] if name in value else value.get(_camel(name))
    return value


def text(value: Any, *path: str) -> str:
    field = at(value, *path)
    return field if isinstance(field, str) else ""


def number(value: Any, *path: str) -> int:
    field = at(value, *path)
    if isinstance(field, str):  # 64-bit numbers are strings in JSON
        return digits(field)
    return field if isinstance(field, int) else 0


def digits(word: str) -> int:
    """Return the number that `word` stands for; 0 if it is not a decimal number of at most 20 digits."""
    return int(word) if word.isdecimal() and len(word) <= _MOST_DIGITS else 0


def items(value: Any, *path: str) -> list[dict[str, Any]]:
    field = at(value, *path)
    return [each for each in field if isinstance(each, dict)] if isinstance(field, list) else []


def words(value: Any, *path: str) -> list[str]:
    field = at(value, *path)
    return [each for each in field if isinstance(each, str)] if isinstance(field, list) else []


def managed_by(message: dict[str, Any]) -> str:
    """Return NAME.NAMESPACE of the Istio object that `message` was generated from, according to the metadata that
    Istio's tools read. Return "" if there is no such metadata, and `<unknown>` if it names another kind of
    object."""
    path = text(message, "metadata", "filter_metadata", "istio", "config")
    if not path:
        return ""
    parts = path.split("/")
    if not path.startswith("/apis/networking.istio.io/"):
        return "<unknown>"
    return f"{parts[7]}.{parts[5]}" if len(parts) == 8 else ""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


@lru_cache(maxsize=4096)
def _is_sensitive(name: str) -> bool:
    return _snake(name) in _SENSITIVE


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _redacted(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {inner: each if inner == "@type" else _redacted(each, inner) for inner, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each, name) for each in value]
    if _snake(name) == "inline_bytes":
        return base64.b64encode(_REDACTED.encode()).decode()
    return _REDACTED


def _has_key(value: str) -> bool:
    if len(value) < _SHORTEST_KEY:
        return False
    return _is_private(value) or (_BASE64.match(value) is not None and _is_private(_decoded(value)))


def _is_private(value: str) -> bool:
    return "PRIVATE KEY-----" in value and "-----BEGIN " in value


def _decoded(value: str) -> str:
    """Return the text that `value` is the base64 of, or "". In JSON, protobuf's bytes are base64."""
    try:
        return base64.b64decode(value, validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return ""
