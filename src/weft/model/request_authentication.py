"""RequestAuthentication: JWT rules by issuer. Requests without a token are accepted, requests with an invalid token
are rejected."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from weft.model.names import Labels, Origin


class TokenHeader(msgspec.Struct, frozen=True):
    name: str
    prefix: str = ""


class KeyServer(msgspec.Struct, frozen=True):
    """The server from which a proxy fetches an issuer's keys. `host`: the fully qualified host in `uri`. `meshed`:
    whether the proxy calls the server through the mesh: by http:// and the name of a service. `tls`: whether it is
    called over TLS (https://)."""

    uri: str
    host: str
    port: int
    tls: bool = True
    meshed: bool = False


class JwtRule(msgspec.Struct, frozen=True):
    issuer: str  # "": any
    audiences: tuple[str, ...] = ()  # (): any
    jwks: str = ""  # the keys inline: public keys only
    key_server: KeyServer | None = None  # if `jwks` is empty
    from_headers: tuple[TokenHeader, ...] = ()
    from_params: tuple[str, ...] = ()
    from_cookies: tuple[str, ...] = ()
    output_payload_header: str = ""
    forward_original_token: bool = False
    claims_to_headers: tuple[tuple[str, str], ...] = ()  # (claim, header)
    timeout: timedelta | None = None  # for fetching the keys
    space_delimited_claims: tuple[str, ...] = ()
    line: int = 0


class RequestAuthentication(msgspec.Struct, frozen=True, cache_hash=True):
    name: str
    namespace: str
    selector: Labels = ()
    rules: tuple[JwtRule, ...] = ()
    targets: tuple[str, ...] = ()  # gateways that the object applies to instead of workloads: KIND NAME
    refused: bool = False  # replaces a rejected object whose issuers are unknown: no request is accepted
    created: str = ""
    origin: Origin | None = None
