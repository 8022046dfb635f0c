"""Reads MeshConfig's `extensionProviders`: each has a name, and one field that selects its type. The table `_READERS`
has a reader for each supported type; unsupported types get a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from http import HTTPStatus

from weft.api import access_log
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_header, is_host, words
from weft.model.access_log import LogProvider
from weft.model.extension_provider import Authorizer, CheckedBody, ExtensionProvider

DEFAULT_TIMEOUT = timedelta(seconds=5)
MOST_BODY = 64 << 20  # bytes that a proxy may buffer per request

# The HTTP statuses that Envoy can send.
_STATUSES = frozenset(int(status) for status in HTTPStatus if status >= 200) - {418, 425, 451}

_NOT_ACTED_ON = tuple(
    words("""
    zipkin lightstep datadog opencensus skywalking opentelemetry prometheus sds stackdriver
    envoyHttpAls envoyTcpAls envoyOtelAls
    """)
)


def read_extension_providers(config: Fields) -> tuple[ExtensionProvider | LogProvider, ...]:
    found: dict[str, ExtensionProvider | LogProvider] = {}
    names: set[str] = set()
    for fields in config.items("extensionProviders"):
        name = fields.text("name", required=True, most=253)
        if name in names:
            fields.error("name", f"two extension providers are named `{name}`")
        names.add(name)
        sort = fields.one_of(*_READERS, *_NOT_ACTED_ON)
        if not sort:
            hint = "for example envoyExtAuthzHttp or envoyExtAuthzGrpc"
            fields.lacks(*_READERS, *_NOT_ACTED_ON, what="an extension provider needs a type", hint=hint)
        fields.unsupported(*_NOT_ACTED_ON)
        if sort in access_log.ELSEWHERE:
            found[name] = LogProvider(name)
        for known, read in _READERS.items():
            inner = fields.fields(known)
            if inner is not None:
                found[name] = read(inner, name)
    return tuple(found.values())


def _http(fields: Fields, name: str) -> ExtensionProvider:
    prefix = fields.request_text("pathPrefix", most=4_096)
    if prefix and not prefix.startswith("/"):
        fields.error("pathPrefix", f"`pathPrefix` must begin with /, not `{prefix[:80]}`")
    former = _headers(fields, "includeHeadersInCheck")  # the field's name in older versions of Istio
    headers = _headers(fields, "includeRequestHeadersInCheck") or former
    additional = fields.string_map("includeAdditionalHeadersInCheck")
    for header in additional:
        if not is_header(header):
            fields.error(("includeAdditionalHeadersInCheck", header), f"`{header[:80]}` is not a header name")
    return _authorizer(
        fields,
        name,
        grpc=False,
        path_prefix=prefix,
        request_headers=headers,
        additional_headers=tuple(sorted(additional.items())),
        upstream_headers_on_allow=_headers(fields, "headersToUpstreamOnAllow"),
        downstream_headers_on_allow=_headers(fields, "headersToDownstreamOnAllow"),
        downstream_headers_on_deny=_headers(fields, "headersToDownstreamOnDeny"),
    )


def _grpc(fields: Fields, name: str) -> ExtensionProvider:
    return _authorizer(fields, name, grpc=True)


_READERS: Mapping[str, Callable[[Fields, str], ExtensionProvider | LogProvider]] = {
    access_log.FILE: access_log.read_file,
    "envoyExtAuthzHttp": _http,
    "envoyExtAuthzGrpc": _grpc,
}


def _is_service(text: str) -> bool:
    namespace, slash, host = text.rpartition("/")
    return is_host(host) and (is_dns_label(namespace) or not slash)


def _authorizer(
    fields: Fields,
    name: str,
    *,
    grpc: bool,
    path_prefix: str = "",
    request_headers: tuple[str, ...] = (),
    additional_headers: tuple[tuple[str, str], ...] = (),
    upstream_headers_on_allow: tuple[str, ...] = (),
    downstream_headers_on_allow: tuple[str, ...] = (),
    downstream_headers_on_deny: tuple[str, ...] = (),
) -> Authorizer:
    hint = "write NAMESPACE/HOST or HOST, fully qualified"
    written = fields.checked("service", _is_service, "a host name", hint, required=True, most=320)
    namespace, _, host = written.rpartition("/")
    return Authorizer(
        name=name,
        host=host,
        namespace=namespace,
        port=fields.port("port", required=True),
        grpc=grpc,
        timeout=fields.duration("timeout") or DEFAULT_TIMEOUT,
        fail_open=fields.boolean("failOpen") or False,
        status_on_error=_status(fields),
        clear_route_cache=fields.boolean("clearRouteCache") or False,
        body=_body(fields),
        path_prefix=path_prefix,
        request_headers=request_headers,
        additional_headers=additional_headers,
        upstream_headers_on_allow=upstream_headers_on_allow,
        downstream_headers_on_allow=downstream_headers_on_allow,
        downstream_headers_on_deny=downstream_headers_on_deny,
    )


def _status(fields: Fields) -> int:
    text = fields.text("statusOnError", most=8)
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or int(text) not in _STATUSES:
        fields.error("statusOnError", f"`{text}` is not an HTTP status that Envoy supports", 'for example "503"')
        return 0
    return int(text)


def _body(fields: Fields) -> CheckedBody | None:
    body = fields.fields("includeRequestBodyInCheck")
    if body is None:
        return None
    most = body.integer("maxRequestBytes", least=1, most=MOST_BODY)
    if most is None:
        body.lacks("maxRequestBytes", what="`maxRequestBytes` is required", hint="for example 8192")
    return CheckedBody(
        most or 1, body.boolean("allowPartialMessage") or False, as_bytes=body.boolean("packAsBytes") or False
    )


def _headers(fields: Fields, name: str) -> tuple[str, ...]:
    """Read a list of header names, each of which may begin or end with `*`."""
    found = fields.texts(name, most=256)
    for index, header in enumerate(found):
        plain = header.removeprefix("*") if header.startswith("*") else header.removesuffix("*")
        if header != "*" and (not is_header(plain) or "*" in plain):
            fields.error((name, index), f"`{header[:80]}` is not a header name", "a name may begin or end with `*`")
    return tuple(header.lower() for header in found)
