from datetime import timedelta
from textwrap import indent

import pytest

from api.reading import read, told, value
from weft.model.extension_provider import Authorizer, CheckedBody


def config(providers):
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n"
    return f"{head}data:\n  mesh: |\n{indent(f'extensionProviders: {providers}', '    ')}"


def test_reads_all_fields_of_an_http_authorizer():
    (found,) = value(
        config(
            """[{name: a, envoyExtAuthzHttp: {service: auth/check.auth.svc.cluster.local, port: 8000, timeout: 1s,
            pathPrefix: /check, failOpen: true, statusOnError: "503", clearRouteCache: true,
            includeRequestHeadersInCheck: [Authorization, "x-ext-*"], includeAdditionalHeadersInCheck: {x-a: b},
            includeRequestBodyInCheck: {maxRequestBytes: 100, allowPartialMessage: true},
            headersToUpstreamOnAllow: [x-user], headersToDownstreamOnAllow: [set-cookie],
            headersToDownstreamOnDeny: ["*-authenticate"]}}]"""
        )
    ).extension_providers
    assert found == Authorizer(
        name="a",
        host="check.auth.svc.cluster.local",
        namespace="auth",
        port=8000,
        timeout=timedelta(seconds=1),
        fail_open=True,
        status_on_error=503,
        clear_route_cache=True,
        body=CheckedBody(100, allow_partial=True),
        path_prefix="/check",
        request_headers=("authorization", "x-ext-*"),
        additional_headers=(("x-a", "b"),),
        upstream_headers_on_allow=("x-user",),
        downstream_headers_on_allow=("set-cookie",),
        downstream_headers_on_deny=("*-authenticate",),
    )


def test_reads_a_grpc_authorizer_and_gives_it_five_seconds():
    (found,) = value(config("[{name: a, envoyExtAuthzGrpc: {service: c.d, port: 9000}}]")).extension_providers
    assert (found.grpc, found.timeout, found.fail_open) == (True, timedelta(seconds=5), False)


def test_other_providers_are_named_in_a_warning():
    parsed = read(config("[{name: a, prometheus: {}}, {name: b, envoyExtAuthzGrpc: {service: c.d, port: 1}}]"))
    assert [provider.name for provider in parsed.values[0].extension_providers] == ["b"]
    assert [problem.what for problem in parsed.problems] == ["`prometheus` is ignored by this version of weft"]


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("{name: a}", "an extension provider needs a type"),
        ("{name: a, envoyExtAuthzGrpc: {port: 1}}", "`service` is required"),
        ("{name: a, envoyExtAuthzGrpc: {service: c.d}}", "`port` is required"),
        ("{name: a, envoyExtAuthzGrpc: {service: 'http://c', port: 1}}", "is not a host name"),
        ("{name: a, envoyExtAuthzGrpc: {service: c.d, port: 1, pathPrefix: /a}}", "unknown field `pathPrefix`"),
        ("{name: a, envoyExtAuthzHttp: {service: c.d, port: 1, pathPrefix: a}}", "`pathPrefix` must begin with /"),
        ("{name: a, envoyExtAuthzHttp: {service: c.d, port: 1, statusOnError: '999'}}", "`999` is not an HTTP status"),
        ("{name: a, envoyExtAuthzHttp: {service: c.d, port: 1, statusOnError: '418'}}", "`418` is not an HTTP status"),
        ("{name: a, envoyExtAuthzHttp: {service: c.d, port: 1, headersToUpstreamOnAllow: ['a*b']}}", "`a*b` is not a header name"),
        ("{name: a, envoyExtAuthzHttp: {service: c.d, port: 1, includeRequestBodyInCheck: {}}}", "`maxRequestBytes` is required"),
        ("{name: a, prometheus: {}}, {name: a, prometheus: {}}", "two extension providers are named `a`"),
        ("{name: a, envoyExtAuthzHttp: {service: c.d, port: 1}, envoyExtAuthzGrpc: {service: c.d, port: 1}}", "only one of"),
    ],
)  # fmt: skip
def test_reports_what_is_wrong(provider, said):
    assert any(said in line for line in told(config(f"[{provider}]")))


def test_istios_own_example_is_read_without_problems():
    (found,) = value(config('[{name: a, envoyExtAuthzHttp: {service: "ext-authz.foo.svc.cluster.local", port: "8000", includeHeadersInCheck: ["x-ext-authz"]}}]')).extension_providers  # fmt: skip
    assert (found.port, found.request_headers) == (8000, ("x-ext-authz",))


def test_the_new_name_of_the_headers_field_has_precedence_over_the_old():
    (found,) = value(config("[{name: a, envoyExtAuthzHttp: {service: a.b, port: 80, includeHeadersInCheck: [x-old], includeRequestHeadersInCheck: [x-new]}}]")).extension_providers  # fmt: skip
    assert found.request_headers == ("x-new",)
