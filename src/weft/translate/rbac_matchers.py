"""Translates a value of an AuthorizationPolicy to one of Envoy's matchers: `exact`, `prefix*`, `*suffix`, and `*` for
"present", as in Istio.

Rule: values that deny requests are matched *wide* (`paths` of a DENY, `notPaths` of an ALLOW); values that allow
requests are matched exactly. So a spelling that some server treats as equal never bypasses a policy.
"""

from __future__ import annotations

import ipaddress
import re

from envoy.config.core.v3.address_pb2 import CidrRange
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.path_pb2 import PathMatcher
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher

from weft.api.authorization_values import ANY, ONE, is_template

JWT = "envoy.filters.http.jwt_authn"
PAYLOAD = "payload"

# Spellings that some server treats as a path separator: doubled, as a backslash, percent-encoded, and after parameters
# (`;v=1`), which some servers strip from a segment.
_BYTES = r"\C*"  # any bytes, also those that are not valid UTF-8, which a dot does not match
_PORT = re.compile(r":\d+$")  # the port of a host; an IPv6 address has its colons in brackets
_PARAMETERS = r"(?:(?:;|%3[bB])[^/]*)?"
_SEPARATOR = rf"(?:{_PARAMETERS}(?:[/\\]|%2[fF]|%5[cC]))+"
_ENCODED_SEPARATOR = re.compile(r"[/\\]|%2[fF]|%5[cC]")
# A path with a `.` or `..` segment that Envoy's normalization keeps, but that some servers resolve.
DISGUISED_DOTS = r"(?:\C*(?:[/\\]|%2[fF]|%5[cC]))?(?:\.|%2[eE]){1,2}(?:(?:;|%3[bB]|[/\\]|%2[fF]|%5[cC])\C*)?"

# Spaces around a header's value: HTTP/1.1 servers strip them, and HTTP/2 forbids them.
BETWEEN_SPACES = r"[ \t]\C*|\C*[ \t]"


def text(value: str, *, before: str = "") -> StringMatcher:
    """Return Envoy's matcher for `value`, a text that may contain Istio's wildcards. `before`: a prefix that is added
    to every value except `*`."""
    if value == "*":
        return regex(".+")
    if value.startswith("*"):
        return regex(f"{re.escape(before)}.*{re.escape(value[1:])}") if before else StringMatcher(suffix=value[1:])
    if value.endswith("*"):
        return StringMatcher(prefix=before + value[:-1])
    return StringMatcher(exact=before + value)


def regex(pattern: str) -> StringMatcher:
    result = StringMatcher()
    result.safe_regex.regex = pattern
    return result


def header(name: str, value: str) -> HeaderMatcher:
    if value == "*":
        return HeaderMatcher(name=name, present_match=True)
    return HeaderMatcher(name=name, string_match=text(value))


def host(value: str, *, wide: bool) -> HeaderMatcher:
    """Match the host of a request, case-insensitively. Exact: `a.com` does not match `a.com:80`. Wide: `a.com` also
    matches `a.com:80` and `a.com.`, and a host with userinfo. Envoy's routes treat everything after the last colon
    of a host as its port, even if it is not a number, and everything before an `@` as userinfo. A port in the policy
    is matched exactly."""
    result = HeaderMatcher(name=":authority")
    if value == "*":
        result.present_match = True
    elif wide:
        head, plain = (".*", value[1:]) if value.startswith("*") else ("", value)
        if plain.endswith("*"):
            plain, tail = plain[:-1], _BYTES
        elif written := _PORT.search(plain):
            plain, tail = plain[: written.start()], rf"\.?{written[0]}"
        else:
            tail = rf"\.?(?::{_BYTES})?"
        result.string_match.CopyFrom(regex(f"(?i)(?:{_BYTES}@)?{head}{re.escape(plain)}{tail}"))
    else:
        result.string_match.CopyFrom(text(value))
        result.string_match.ignore_case = True
    return result


def method(value: str, *, wide: bool) -> HeaderMatcher:
    """Match the method of a request. `wide` (see the top of this module): case-insensitively, because HTTP/2 allows
    `post` as well as POST, and some servers treat both alike."""
    result = header(":method", value)
    if wide and value != "*":
        result.string_match.ignore_case = True
    return result


def path(value: str, *, wide: bool) -> PathMatcher:
    """Match the path of a request, without query and fragment. `wide` (see the top of this module): also match other
    spellings of the path that some servers treat as equal."""
    result = PathMatcher()
    if wide and value != "*":
        result.path.CopyFrom(regex(_wide_path(value)))
    elif is_template(value):
        result.path.CopyFrom(regex(_template(value)))
    else:
        result.path.CopyFrom(text(value))
    return result


def address_range(value: str) -> CidrRange:
    network = ipaddress.ip_network(value, strict=False)
    result = CidrRange(address_prefix=str(network.network_address))
    result.prefix_len.value = network.prefixlen
    return result


def namespace(value: str) -> StringMatcher:
    """Match the namespace in the caller's identity. A `*` at any position matches any part of the namespace's name."""
    return regex(f"spiffe://.+/ns/{_starred(value)}/.*")


def service_account(value: str) -> StringMatcher:
    owner, _, name = value.partition("/")
    return regex(f"spiffe://.+/ns/{re.escape(owner)}/(?:.+/)?sa/{re.escape(name)}(?:/.+)?")


def trust_domain(value: str) -> StringMatcher:
    if value == "*":
        return StringMatcher(prefix="spiffe://")
    if "*" in value:
        return regex(f"spiffe://{_starred(value)}/.*")
    return StringMatcher(prefix=f"spiffe://{value}/")


def claim(names: tuple[str, ...], value: ValueMatcher) -> MetadataMatcher:
    """Return a matcher for a claim of the verified token. `names`: the names of the claim and of its nested fields.
    `value`: the matcher for the claim's value."""
    return metadata(JWT, (PAYLOAD, *names), value)


def metadata(owner: str, keys: tuple[str, ...], value: ValueMatcher) -> MetadataMatcher:
    result = MetadataMatcher(filter=owner, value=value)
    for key in keys:
        result.path.add().key = key
    return result


def claimed(values: tuple[str, ...]) -> ValueMatcher:
    """Return a matcher for a claim whose value is one of `values`, or a list that contains one of them."""
    return in_claim([ValueMatcher(string_match=text(value)) for value in values])


def in_claim(alternatives: list[ValueMatcher]) -> ValueMatcher:
    """Return a matcher for a claim whose value one of the `alternatives` matches, or whose value is a list with an
    element that one of them matches."""
    wanted = either(alternatives)
    listed = ValueMatcher()
    listed.list_match.one_of.CopyFrom(wanted)
    return either([listed, wanted])


def either(matchers: list[ValueMatcher]) -> ValueMatcher:
    if len(matchers) == 1:
        return matchers[0]
    result = ValueMatcher()
    result.or_match.value_matchers.extend(matchers)
    return result


def _starred(value: str) -> str:
    return "[^/]*".join(re.escape(part) for part in value.split("*"))


def _template(value: str) -> str:
    """Return a path template as a regular expression: Envoy's template matcher allows fewer characters in a segment
    than requests may have."""
    return "".join(_template_part(part) for part in re.split(r"(\{\*{1,2}\})", value))


def _template_part(part: str) -> str:
    return {ONE: "[^/]+", ANY: ".*"}.get(part) or re.escape(part)


def _wide_path(value: str) -> str:
    head = tail = ""
    if not is_template(value):
        if value.startswith("*"):
            head, value = _BYTES, value[1:]
        elif value.endswith("*"):
            tail, value = _BYTES, value[:-1]
    pieces = [_template(piece) for piece in _ENCODED_SEPARATOR.split(value)]
    # Several separators in a row count as one separator.
    first, *rest = pieces
    inner = [piece for piece in rest[:-1] if piece] + rest[-1:]
    # The match ignores case, because some servers treat /Admin as /admin.
    return "(?i)" + head + _SEPARATOR.join([first, *inner]) + (tail or _PARAMETERS)
