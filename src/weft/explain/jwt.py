"""Verifies tokens like Envoy's jwt_authn filter: where it looks for tokens, which issuers it accepts, and what it
does with the claims. If the provider has its keys inline, the token's signature is verified (`token.py`). If it
fetches the keys, the signature is assumed to be valid, and a step names that assumption."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication, JwtProvider, JwtRequirement

from weft.explain import matchers
from weft.explain.decision import DecisionStage, Unsure
from weft.explain.request import Request, Token
from weft.explain.route import takes
from weft.explain.rule import GuardInput
from weft.explain.token import FORGED, read_token, wrong_signature
from weft.explain.walk import Walk

FILTER = "envoy.filters.http.jwt_authn"
_SKEW = 60  # seconds; Envoy's default for clock_skew_seconds
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")

_MISSING = "Jwt is missing"
_UNKNOWN_ISSUER = "Jwt issuer is not configured"
_WRONG_AUDIENCE = "Audiences in Jwt are not allowed"
_EARLY, _LATE = "Jwt not yet valid", "Jwt is expired"


class TokenDenied(msgspec.Struct, frozen=True):
    status: int
    why: str

    @property
    def detail(self) -> str:
        return f"jwt_authn_access_denied{{{self.why.replace(' ', '_')}}}"


class _Found(msgspec.Struct, frozen=True):
    token: Token
    provider: str  # the provider whose config names the place of the token
    header: str = ""  # the header with the token; removed when the token is accepted and not forwarded
    parameter: str = ""


def refused(walk: Walk, config: JwtAuthentication, request: Request, seen: GuardInput) -> TokenDenied | None:
    """Returns the denial of a request (`seen`: as filters see it) by the jwt_authn filter; None if the request passes.
    Adds the claims of an accepted token to the metadata of `seen`, and to its headers if so configured."""
    headers = seen.headers
    is_preflight = headers.value(":method") == "OPTIONS" and bool(
        headers.joined("origin") and headers.joined("access-control-request-method")
    )
    if config.bypass_cors_preflight and is_preflight:
        walk.tell(DecisionStage.TOKEN, "a preflight needs no token")
        return None
    target = headers.value(":path")
    path = matchers.without_query(target)
    rule = next((each for each in config.rules if takes(each.match, headers, target, path)), None)
    if rule is None or not rule.HasField("requires"):
        return None
    check = _Check(config, request, seen)
    wrong = check.require(rule.requires)
    if wrong:
        walk.tell(DecisionStage.TOKEN, f"the token is rejected: {wrong}")
        return TokenDenied(403 if wrong == _WRONG_AUDIENCE else 401, wrong)
    if check.payload:
        seen.metadata[FILTER] = {**seen.metadata.get(FILTER, {}), **check.payload}
        unchecked = ""
        if check.unchecked:
            unchecked = f": its signature is not checked here, because the keys are fetched from {check.unchecked}"
            keys = f"the keys of {check.issuer} are not available here"
            walk.provided = f"the token's signature is valid, which was not checked: {keys}"
        walk.tell(DecisionStage.TOKEN, f"the token of {check.issuer} is accepted{unchecked}", about=check.issuer)
    else:
        walk.tell(DecisionStage.TOKEN, "the request has no token and passes, without a principal")
    return None


class _Check:
    """Evaluates the filter's requirements for one request. Each method for a requirement returns "" if it is met,
    else Envoy's error."""

    def __init__(self, config: JwtAuthentication, request: Request, seen: GuardInput) -> None:
        self._config, self._request, self._seen = config, request, seen
        self.payload: dict[str, Any] = {}
        self.issuer = ""
        self.unchecked = ""  # URL of the keys that would verify the signature; "" if it was verified

    def require(self, requirement: JwtRequirement, used: tuple[str, ...] = ()) -> str:
        match requirement.WhichOneof("requires_type"):
            case "provider_name":
                return self._believed_by(requirement.provider_name)
            case "requires_any":
                return self._any(list(requirement.requires_any.requirements))
            case "requires_all":
                for each in requirement.requires_all.requirements:
                    if wrong := self.require(each):
                        return wrong
                return ""
            case "allow_missing":
                return self._good_or_missing(used)
            case None:
                return ""
            case kind:
                raise Unsure(f"a token is required by {kind}, which is not simulated")

    def _any(self, requirements: list[JwtRequirement]) -> str:
        """Returns "" if one of the requirements is met. Else returns the last error; errors about a missing token or
        an unknown issuer count only if there is no other."""
        used = tuple(each.provider_name for each in requirements if each.provider_name)
        specific = last = ""
        for each in sorted(requirements, key=lambda one: one.WhichOneof("requires_type") == "allow_missing"):
            last = self.require(each, used)
            if not last:
                return ""
            if last not in (_MISSING, _UNKNOWN_ISSUER):
                specific = last
        return specific or last

    def _believed_by(self, name: str) -> str:
        provider = self._config.providers[name]
        self._sanitize(provider)
        candidates = self._look(name)
        if not candidates:
            return _MISSING
        for each in reversed(candidates):
            if wrong := self._wrong(each, (name,), provider):
                return wrong
            self._believe(each, provider)
        return ""

    def _good_or_missing(self, used: tuple[str, ...]) -> str:
        """Checks the requirement that a token may be missing but not invalid. Returns "" if the request has no
        token, or if each token is valid for the provider of its issuer; else Envoy's error. `used`: the providers
        whose locations are searched for tokens; () for all providers."""
        names = used or tuple(sorted(self._config.providers))
        candidates = [each for name in names for each in self._look(name)]
        wrong = ""
        for each in reversed(candidates):
            provider = self._by_issuer(str(each.token.claims.get("iss", "")))
            wrong = self._wrong(each, names, provider)
            if not wrong and provider is not None:
                self._believe(each, provider)
        return wrong

    def _by_issuer(self, issuer: str) -> JwtProvider | None:
        """The provider of an issuer, else the first provider (by name) that accepts any issuer; None if there is
        neither."""
        providers = [self._config.providers[name] for name in sorted(self._config.providers)]
        return next((each for wanted in (issuer, "") for each in providers if each.issuer == wanted), None)

    def _wrong(self, candidate: _Found, names: tuple[str, ...], provider: JwtProvider | None) -> str:
        token, claims = candidate.token, candidate.token.claims
        if token.malformed:
            return token.malformed
        issuer = str(claims.get("iss", ""))
        allowed = {self._config.providers[name].issuer for name in names}
        if provider is None or (issuer not in allowed and "" not in allowed):
            return _UNKNOWN_ISSUER
        now, skew = self._request.now, provider.clock_skew_seconds or _SKEW
        if now and _number(claims.get("nbf")) > now + skew:
            return _EARLY
        expires = _number(claims.get("exp"))
        if now and expires and now > expires + skew:
            return _LATE
        if provider.audiences and not _audiences(claims) & {_tidy(each) for each in provider.audiences}:
            return _WRONG_AUDIENCE
        if token.signed and (keys := provider.local_jwks.inline_string):
            return wrong_signature(token.text, keys)
        return "" if token.verified else FORGED

    def _believe(self, candidate: _Found, provider: JwtProvider) -> None:
        headers, claims = self._seen.headers, candidate.token.claims
        self.issuer = str(claims.get("iss", ""))
        if candidate.token.signed and not provider.local_jwks.inline_string:
            self.unchecked = provider.remote_jwks.http_uri.uri or "elsewhere"
        if provider.payload_in_metadata:
            split = set(provider.normalize_payload_in_metadata.space_delimited_claims)
            self.payload[provider.payload_in_metadata] = {
                name: value.split() if name in split and isinstance(value, str) else value
                for name, value in claims.items()
            }
        if provider.forward_payload_header:
            headers.make_up(provider.forward_payload_header.lower())
        for entry in provider.claim_to_headers:
            text = _as_text(_claim(claims, entry.claim_name))
            if text:
                headers.add(entry.header_name, text)
        if not provider.forward and candidate.header:
            headers.remove(candidate.header)
        if not provider.forward and candidate.parameter:
            headers.set(":path", _without_parameter(headers.value(":path"), candidate.parameter))

    def _sanitize(self, provider: JwtProvider) -> None:
        for name in (provider.forward_payload_header, *(each.header_name for each in provider.claim_to_headers)):
            if name:
                self._seen.headers.remove(name)

    def _look(self, name: str) -> list[_Found]:
        provider, headers = self._config.providers[name], self._seen.headers
        places = [(each.name, each.value_prefix) for each in provider.from_headers]
        parameters = list(provider.from_params)
        if not (places or parameters or provider.from_cookies):
            places, parameters = [("authorization", "Bearer ")], ["access_token"]
        candidates = []
        for header, prefix in places:
            value = headers.joined(header)
            if value and prefix in value:
                text = _extracted(value, value.index(prefix) + len(prefix)) if prefix else value
                candidates.append(_Found(self._token(text), name, header=header))
        given = {unquote(key): unquote(value) for key, value in _parameters(headers.value(":path")).items()}
        candidates += [_Found(self._token(given[each]), name, parameter=each) for each in parameters if each in given]
        cookies = _cookies(headers.joined("cookie") or "")
        candidates += [_Found(self._token(cookies[each]), name) for each in provider.from_cookies if each in cookies]
        return candidates

    def _token(self, text: str) -> Token:
        """Return the token with this text. If the text is that of a token which the user gave as claims (`--jwt
        '{...}'`), return this token from the explained request (`Request.tokens`). Any other text is parsed as a JWT;
        `malformed` is set if it is none."""
        made_up = next((each for each in self._request.tokens if each.text == text and not each.signed), None)
        return made_up or read_token(text)


def _extracted(value: str, start: int) -> str:
    match = _TOKEN.search(value, start)
    return match[0] if match else value


def _parameters(target: str) -> dict[str, str]:
    return matchers.query_parameters(target)


def _without_parameter(target: str, name: str) -> str:
    """The request's target without the query parameter `name`. The other parameters are decoded and sorted by name,
    as Envoy rewrites them."""
    path, _, query = target.partition("?")
    left = [part.partition("=") for part in query.split("&") if part.partition("=")[0] != name]
    decoded = [(unquote(key), unquote(value)) for key, _, value in left]
    written = "&".join(f"{key}={value}" for key, value in sorted(decoded, key=lambda part: part[0]))
    return f"{path}?{written}" if left else path


def _cookies(header: str) -> dict[str, str]:
    cookies: dict[str, str] = {}
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            cookies.setdefault(name, value.strip('"'))
    return cookies


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(int(value)) if value >= 0 and value == int(value) else f"{value:f}"
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _audiences(claims: Mapping[str, Any]) -> set[str]:
    written = claims.get("aud", [])
    return {_tidy(each) for each in ([written] if isinstance(written, str) else written) if isinstance(each, str)}


def _tidy(audience: str) -> str:
    """The audience without its scheme and without a trailing slash, as Envoy compares audiences."""
    return re.sub(r"^https?://", "", audience).removesuffix("/")
