"""Reads string matches of VirtualServices: `{exact: …}`, `{prefix: …}`, `{regex: …}`, and `{}` for "present"."""

from __future__ import annotations

from weft.api.reader import Fields
from weft.api.syntax import is_header
from weft.model.virtual_service import CLAIMS, MatchKind, StringMatch

MOST_QUERY_NAME = 1_024  # bytes; Envoy's own limit


def string_match(holder: Fields, name: str) -> StringMatch | None:
    fields = holder.fields(name)
    return None if fields is None else read_match(fields, presence=False)


def uri_match(holder: Fields, name: str) -> StringMatch | None:
    """Read the match of a path in the field `name` of `holder`; None if it is not set. Unlike in other matches, an
    empty prefix is allowed, and matches every path."""
    fields = holder.fields(name)
    if fields is not None and fields.raw("prefix") == "" and fields.one_of("exact", "prefix", "regex") == "prefix":
        fields.text("prefix")
        return StringMatch(MatchKind.PREFIX, "")
    return None if fields is None else read_match(fields, presence=False)


def read_match(fields: Fields, *, presence: bool) -> StringMatch:
    kind = fields.one_of("exact", "prefix", "regex")
    if kind == "regex":
        return StringMatch(MatchKind.REGEX, fields.regex("regex"))
    value = fields.text(kind, most=16_384) if kind else ""
    if kind == "prefix" and not value:
        fields.lacks("prefix", at="prefix", what="an empty prefix matches everything", hint="leave the match out")
    if not kind and not presence:
        what, hint = "the match needs `exact`, `prefix` or `regex`", 'for example {prefix: "/api"}'
        fields.lacks("exact", "prefix", "regex", what=what, hint=hint)
    return StringMatch(MatchKind(kind) if kind else MatchKind.PRESENT, value)


def named_matches(
    holder: Fields, name: str, *, headers: bool, star: bool = False
) -> tuple[tuple[str, StringMatch], ...]:
    """Read the mapping `name` of `holder`: header matches (`headers`: true) or query parameter matches (false), sorted
    by name. Header names are returned in lower case, as Envoy compares them. `star`: whether `{regex: "*"}`, which is
    no regular expression, stands for "present", as in Istio's `withoutHeaders`."""
    matches = []
    for key, fields in holder.entries(name):
        claim = _claim(key) if headers else ""
        if headers and not claim and key.lower().startswith(CLAIMS):
            what = f"`{key[:80]}` names no claim"
            holder.error((name, key), what, f"write {CLAIMS}[NAME], or {CLAIMS}[NAME][NESTED]")
        elif claim:
            pass
        elif headers and key not in (":method", ":authority", ":path", ":scheme") and not is_header(key):
            holder.error((name, key), f"`{key[:80]}` is not a header name")
        elif not headers and not 0 < len(key.encode()) <= MOST_QUERY_NAME:
            what = f"longer than {MOST_QUERY_NAME} bytes" if key else "empty"
            holder.error((name, key), f"the name of a query parameter is {what}", 'for example {page: {exact: "2"}}')
        if star and fields.raw("regex") == "*" and fields.one_of("exact", "prefix", "regex") and fields.text("regex"):
            match = StringMatch(MatchKind.PRESENT)
        else:
            match = read_match(fields, presence=True)
        matches.append((claim or key.lower() if headers else key, match))
    return tuple(sorted(matches, key=lambda pair: pair[0]))


def _claim(key: str) -> str:
    """Return the name of a match on a JWT claim in the form with brackets, as Istio reads it; "" for other names.
    `@request.auth.claims.a.b` is the same as `@request.auth.claims[a][b]`."""
    rest = key[len(CLAIMS) :] if key.lower().startswith(CLAIMS) else ""
    if rest.startswith(".") and len(rest) > 1:
        rest = f"[{rest[1:].replace('.', '][')}]"
    return f"{CLAIMS}{rest}" if rest.startswith("[") and rest.endswith("]") and "[]" not in rest else ""
