"""Reads Istio's RequestAuthentication: the issuers whose tokens the selected workloads accept, and where in a request
they look for tokens.

Rule: an object that cannot be applied exactly as written is rejected. A rejected RequestAuthentication denies all
requests: accepting wrong tokens would be worse than an outage.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from weft.api.key_set import MOST_CHARACTERS, KeyFlaw, read_key_set
from weft.api.metadata import Meta, selector
from weft.api.reader import Fields
from weft.api.syntax import is_address, is_header, is_host, is_label_name, is_label_value
from weft.api.targets import read_targets
from weft.base.problem import Severity
from weft.model.request_authentication import JwtRule, KeyServer, RequestAuthentication, TokenHeader
from weft.model.value import Value

_MOST_NAME = 2_048  # characters of an issuer, an audience or a claim

# Headers that cannot be set from a claim: setting them would change the framing or the target of a request.
_FRAMING = frozenset(
    ("connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding")
) | {"upgrade"}


def read_request_authentication(root: Fields, meta: Meta) -> tuple[RequestAuthentication, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    targets = read_targets(spec)
    chosen = selector(spec, "selector", "matchLabels") or ()
    rules = tuple(_rule(rule, meta) for rule in spec.items("jwtRules"))
    if not spec.raw("jwtRules"):
        spec.lacks(
            "jwtRules",
            what="without `jwtRules` a RequestAuthentication checks no token",
            severity=Severity.WARNING,
        )
    return (
        RequestAuthentication(
            name=meta.name,
            namespace=meta.namespace,
            selector=chosen,
            targets=targets,
            rules=rules,
            created=meta.created,
            origin=meta.origin,
        ),
    )


def closed_request_authentication(values: tuple[Value, ...], meta: Meta) -> tuple[Value, ...]:
    """Return what replaces a rejected RequestAuthentication: it denies all HTTP requests to the workloads that the
    rejected one selects, or to all workloads of the namespace if the selector cannot be parsed. `values`: what could be
    parsed of the rejected object. `meta`: its metadata."""
    read = next((value for value in values if isinstance(value, RequestAuthentication)), None)
    chosen = read.selector if read else ()
    if not all(is_label_name(name) and value and is_label_value(value) for name, value in chosen):
        chosen = ()
    bound = read.targets if read and not chosen else ()
    return (
        RequestAuthentication(
            name=meta.name,
            namespace=meta.namespace,
            selector=chosen,
            targets=bound,
            refused=True,
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _rule(rule: Fields, meta: Meta) -> JwtRule:
    for name in ("presence", "failureMode"):
        rule.refused(
            name,
            f"`{name}` is not supported by this version of weft",
            "to require a token, deny requests without one: an AuthorizationPolicy with notRequestPrincipals",
        )
    issuer = rule.text("issuer", most=_MOST_NAME)
    if not issuer and not rule.raw("jwksUri") and not rule.report.is_wrong((*rule.path, "issuer")):
        rule.lacks("issuer", what="`issuer` is required, unless `jwksUri` is set")
    jwt_rule = JwtRule(
        issuer=issuer,
        audiences=_names(rule, "audiences", rule.texts("audiences", most=_MOST_NAME)),
        jwks=_keys(rule),
        key_server=_key_server(rule, meta),
        from_headers=tuple(_header(header) for header in rule.items("fromHeaders")),
        from_params=_names(rule, "fromParams", rule.texts("fromParams", most=256)),
        from_cookies=_names(rule, "fromCookies", rule.texts("fromCookies", most=256)),
        output_payload_header=_written_header(rule, "outputPayloadToHeader"),
        forward_original_token=rule.boolean("forwardOriginalToken") or False,
        claims_to_headers=tuple(_claim(claim) for claim in rule.items("outputClaimToHeaders")),
        timeout=rule.duration("timeout"),
        space_delimited_claims=_names(
            rule, "spaceDelimitedClaims", rule.texts("spaceDelimitedClaims", most=_MOST_NAME)
        ),
        line=rule.line,
    )
    if not rule.has("jwks") and not rule.has("jwksUri"):
        _lacks_keys(rule, issuer)
    _check_headers(rule, jwt_rule)
    return jwt_rule


def _names(rule: Fields, name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    raw = rule.raw(name)
    if raw == "" or (isinstance(raw, (list, tuple)) and "" in raw):
        rule.error(name, f"`{name}` must not be empty text")
    return names


def _lacks_keys(rule: Fields, issuer: str) -> None:
    """Report that `rule`, an entry of `jwtRules`, has neither `jwks` nor `jwksUri`. In Istio such an entry is valid:
    Istio discovers the keys at the issuer, and trusts whatever URL the issuer returns. weft does not do that. `issuer`:
    the issuer in the entry, for the message."""
    what = "the rule has neither `jwks` nor `jwksUri`, and weft does not discover the keys of an issuer"
    hint = "set `jwks` or `jwksUri`"
    if issuer.startswith("https://"):
        hint = f"set `jwksUri` to the `jwks_uri` that {issuer[:200].rstrip('/')}/.well-known/openid-configuration names"
    rule.lacks("jwks", "jwksUri", what=what, hint=hint)


def _keys(rule: Fields) -> str:
    if isinstance(rule.raw("jwks"), (Mapping, list)):
        rule.error("jwks", "`jwks` must be text that contains JSON", "write `jwks: |`, and the JSON indented below it")
        return ""
    text = rule.text("jwks", most=MOST_CHARACTERS)
    if not text:
        if rule.raw("jwks") == "":
            rule.error("jwks", "`jwks` must not be empty")
        return ""
    key_set = read_key_set(text)
    if isinstance(key_set, KeyFlaw):
        rule.error("jwks", key_set.what, key_set.hint)
        return ""
    return key_set


def _key_server(rule: Fields, meta: Meta) -> KeyServer | None:
    uri = rule.request_text("jwksUri", most=4_096)
    if not uri:
        if rule.raw("jwksUri") == "":
            rule.error("jwksUri", "`jwksUri` must not be empty")
        return None
    if rule.has("jwks"):
        rule.warning("jwksUri", "`jwksUri` is not used: the keys are in `jwks`", "remove `jwksUri` or `jwks`")
        return None
    parts = _split(uri)
    port = _port(parts) if parts else None
    if parts is None or port is None or not parts.hostname:
        rule.error("jwksUri", f"`{uri[:80]}` is not the URL of a key set", "for example https://HOST/jwks.json")
        return None
    if "@" in parts.netloc:
        rule.error(
            "jwksUri",
            "`jwksUri` contains a user name or a password",
            "leave the user name and password out: keys are public",
        )
        return None
    if parts.fragment:
        rule.error("jwksUri", "`jwksUri` has a part after `#`, which is never sent")
    if not is_address(parts.hostname) and not is_host(parts.hostname):
        rule.error("jwksUri", f"`{parts.hostname[:80]}` is not a host name")
    host = _in_full(parts.hostname, meta)
    meshed = host.endswith(f".svc.{meta.domain}")
    _judge_scheme(rule, parts.scheme, meshed=meshed)
    return KeyServer(uri, host, port, tls=parts.scheme == "https", meshed=meshed and parts.scheme == "http")


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and uri.isascii() else None


def _port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError:
        return None
    if port is None:
        return 443 if parts.scheme == "https" else 80
    return port or None


def _in_full(host: str, meta: Meta) -> str:
    """Return the fully qualified name of a short service name. `a.b` is returned unchanged, because it may be a host
    outside the mesh."""
    host = host.removesuffix(".")
    return f"{host}.{meta.domain}" if host.endswith(".svc") else meta.host(host)


def _judge_scheme(rule: Fields, scheme: str, *, meshed: bool) -> None:
    if scheme == "http" and not meshed:
        rule.warning(
            "jwksUri",
            "the keys are fetched in plaintext: an attacker on the network can replace them, and forge tokens",
            "use https://, or a service of the mesh: http://NAME.NAMESPACE.svc.cluster.local/...",
        )
    elif scheme == "https" and meshed:
        rule.warning(
            "jwksUri",
            "with https:// the call bypasses the proxy of the service, which then needs a certificate that the system "
            "trusts",
            "use http:// and the port of the service: the mesh encrypts calls between two proxies",
        )


def _header(header: Fields) -> TokenHeader:
    name = header.header("name")
    if not name:
        header.lacks("name", what="`name` is required")
    prefix = header.text("prefix", most=256)
    if not prefix.isprintable():
        header.error("prefix", "`prefix` contains a control character, which is not allowed in headers")
    return TokenHeader(name.lower(), prefix)


def _claim(claim: Fields) -> tuple[str, str]:
    name = claim.text("claim", most=_MOST_NAME)
    header = _written_header(claim, "header")
    for field, value in (("claim", name), ("header", header)):
        if not value:
            claim.lacks(field, what=f"`{field}` is required")
    return name, header


def _written_header(fields: Fields, name: str) -> str:
    header = fields.header(name).lower()
    if header in _FRAMING:
        fields.error(name, f"`{header}` cannot be set from a token: it controls how the request is sent")
    return header if is_header(header) else ""


def _check_headers(rule: Fields, jwt_rule: JwtRule) -> None:
    read = {header.name for header in jwt_rule.from_headers}
    if not (jwt_rule.from_headers or jwt_rule.from_params or jwt_rule.from_cookies):
        read = {"authorization"}
    written = [("outputPayloadToHeader", jwt_rule.output_payload_header)]
    written += (("outputClaimToHeaders", header) for _, header in jwt_rule.claims_to_headers)
    seen: set[str] = set()
    for field, header in written:
        if not header:
            continue
        if header in read:
            rule.error(
                field,
                f"the token is read from the header `{header}`, so no value can be written to it",
                "write the value to another header",
            )
        if header in seen:
            rule.error(field, f"`{header}` is set twice")
        seen.add(header)
