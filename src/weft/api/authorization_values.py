"""Checks values of policies. A value that is well formed but never matches gets a warning, since a DENY rule that
never matches protects nothing; a malformed path template is an error. The functions return the values unchanged."""

from __future__ import annotations

import re

from weft.api.reader import Fields

ONE, ANY = "{*}", "{**}"  # in path templates: one segment; any number of segments
MOST_SEGMENTS = 200  # of one path template

_TEMPLATE_SEGMENT = re.compile(r"\{\*{1,2}\}|[^{}*]*")
_BRACES = re.compile(r"\{[^/{}]*\}")
_UNRESERVED = re.compile(r"%(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")


def is_template(path: str) -> bool:
    return ONE in path or ANY in path


def check_paths(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for index, path in enumerate(values):
        at = (name, index)
        if not path:
            continue
        if path.count("/") > MOST_SEGMENTS:
            fields.error(at, f"the path has more than {MOST_SEGMENTS} segments")
        elif is_template(path):
            _check_template(fields, at, path)
        else:
            _check_star(fields, at, path, f"for any one segment write `{ONE}`")
            if braces := _BRACES.search(path):
                text = f"`{braces[0][:80]}` in `{path[:80]}` is literal: only these characters match it"
                fields.warning(at, text, f"for any one segment write `{ONE}`, for any number of them `{ANY}`")
        if what := _why_never(path):
            fields.warning(at, f"no request's path matches `{path[:80]}`: {what[0]}", what[1])
    return values


def check_hosts(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for index, host in enumerate(values):
        if "/" in host:
            fields.warning(
                (name, index), f"no request's host matches `{host[:80]}`", "write only the name, without a path"
            )
    return check_stars(fields, name, values)


def check_methods(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for index, method in enumerate(values):
        if method != method.upper():
            what = f"no request has the method `{method[:40]}`: methods are in upper case"
            fields.warning((name, index), what, f"write {method[:40].upper()}")
    return check_stars(fields, name, values)


def check_principals(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for index, principal in enumerate(values):
        if principal.startswith("spiffe://"):
            what = "a principal has no `spiffe://` prefix: this value matches no caller"
            hint = f"write {principal.removeprefix('spiffe://')[:200]}"
            fields.warning((name, index), what, hint, code="WFT0522")
    return check_stars(fields, name, values)


def check_trust_domains(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check `values`, names of trust domains in the field `name`, and return them. As in Istio, a `*` may only be the
    first or the last character. A value with a `/` is never a trust domain: it is an error in a source, and a warning
    in a condition (`name` is `values` or `notValues`), in which such a value is allowed but never matches."""
    report = fields.warning if name in ("values", "notValues") else fields.error
    for index, value in enumerate(values):
        if "*" in value[1:-1] or value.count("*") > 1:
            hint = "write the trust domain, or `prefix*`, `*suffix` or `*`"
            fields.error((name, index), f"`{value[:80]}` may have one `*`, at its beginning or end", hint)
        elif "/" in value:
            what = f"`{value[:80]}` is not a trust domain: a trust domain has no `/`"
            report((name, index), what, f"write {value.removeprefix('spiffe://').partition('/')[0][:80]}")
    return values


def check_stars(fields: Fields, name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        _check_star(fields, (name, index), value, "a `*` is a wildcard only at the beginning or at the end")
    return values


def _check_star(fields: Fields, at: tuple[str, int], value: str, hint: str) -> None:
    plain = value[1:] if value.startswith("*") else value.removesuffix("*")
    if "*" in plain:
        fields.warning(at, f"the `*` inside `{value[:80]}` is literal: only an asterisk matches it", hint)


def _check_template(fields: Fields, at: tuple[str, int], path: str) -> None:
    segments = path.split("/")
    if not path.startswith("/"):
        fields.error(at, f"the path template `{path[:80]}` does not begin with /")
    elif not all(_TEMPLATE_SEGMENT.fullmatch(segment) for segment in segments):
        hint = f"`{ONE}` and `{ANY}` must be whole segments, and `*` and braces are not allowed elsewhere"
        fields.error(at, f"`{path[:80]}` is not a path template", hint)
    elif ANY in segments and any(segment in (ONE, ANY) for segment in segments[segments.index(ANY) + 1 :]):
        fields.error(at, f"`{ANY}` must be the last of the wildcards in `{path[:80]}`")


def _why_never(path: str) -> tuple[str, str] | None:
    if not path.startswith(("/", "*")):
        return "it does not begin with /", f"write /{path[:80]}"
    if "?" in path or "#" in path:
        return "a path ends before `?` and `#`", "leave the query out"
    if any(segment in (".", "..") for segment in path.split("/")) or "\\" in path:
        return (
            "paths are normalized before they are matched",
            "write the path with `.`, `..` and `\\` resolved",
        )
    if _UNRESERVED.search(path):
        return (
            "percent-encoded letters, digits, -, ., _ and ~ are decoded before matching",
            "write the characters themselves",
        )
    if not path.isascii() or " " in path:
        return "requests contain such characters percent-encoded", "write them percent-encoded"
    return None
