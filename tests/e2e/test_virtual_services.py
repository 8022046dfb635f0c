"""Each field of a VirtualService, on the wire. Combinations are in `test_routing.py`."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.mesh import tell
from e2e.objects import destination_rule, http_service, istio, service, text, to, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files(control):
    served = "http=8080 http=8081 namer=9000 namer=9443"
    ports = (
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "http-second", "port": 81, "targetPort": 8081},
        {"name": "tcp", "port": 9000},
        {"name": "tls", "port": 9443},
    )
    return {
        "clients.yaml": text(
            workload("client", control=control, labels={"team": "red"}),
            workload("stranger", control=control, labels={"team": "blue"}, namespace="far"),
        ),
        "app.yaml": text(
            workload("app-v1", control=control, serve=served, app="app", version="v1"),
            workload("app-v2", control=control, serve=served, app="app", version="v2"),
            service("app", *ports),
            destination_rule("app", "v1", "v2"),
        ),
        "other.yaml": text(
            workload("other", control=control, serve="http=8080 http=8081 namer=9000", version="v1"),
            service("other", *ports[:3]),
            destination_rule("other", "v1"),
        ),
        "quiet.yaml": text(workload("quiet", control=control, serve="http=8080"), http_service("quiet")),
    }


APP = "app.shop.svc.cluster.local"


def answer(word, **more):
    return {"directResponse": {"status": 200, "body": {"string": word}}, **more}


def of(path="/", *, at="app", **arguments):
    """A request."""
    return f"http://{at}{path}", arguments


async def said(mesh, match, *requests, who="client"):
    """For each request, whether the match selects it."""
    await mesh.try_out(virtual_service("app", answer("yes", match=[match]), answer("no")))
    answers = [await mesh.get(who, url, **arguments) for url, arguments in requests]
    assert {each["body"] for each in answers} <= {"yes", "no"}, answers
    return [each["body"] == "yes" for each in answers]


@proves(
    "VirtualService",
    "spec.http[].match[].scheme.exact",
    "spec.http[].match[].scheme.prefix",
    "spec.http[].match[].scheme.regex",
    "spec.http[].directResponse.status",
    "spec.http[].directResponse.body.string",
)
@pytest.mark.parametrize(("kind", "right", "wrong"), [
    ("exact", "http", "https"), ("prefix", "ht", "https"), ("regex", "https?", "https"),
])  # fmt: skip
async def test_a_match_by_scheme(mesh, kind, right, wrong):
    assert await said(mesh, {"scheme": {kind: right}}, of()) == [True]
    assert await said(mesh, {"scheme": {kind: wrong}}, of()) == [False]


@proves(
    "VirtualService",
    "spec.http[].match[].method.exact",
    "spec.http[].match[].method.prefix",
    "spec.http[].match[].method.regex",
    "spec.http[].match[].authority.exact",
    "spec.http[].match[].authority.prefix",
    "spec.http[].match[].authority.regex",
    "spec.http[].match[].headers.*.exact",
    "spec.http[].match[].headers.*.prefix",
    "spec.http[].match[].headers.*.regex",
    "spec.http[].match[].withoutHeaders.*.exact",
    "spec.http[].match[].withoutHeaders.*.prefix",
    "spec.http[].match[].withoutHeaders.*.regex",
    "spec.http[].match[].queryParams.*.exact",
    "spec.http[].match[].queryParams.*.prefix",
    "spec.http[].match[].queryParams.*.regex",
)
@pytest.mark.parametrize(("kind", "value"), [("exact", "yes"), ("prefix", "ye"), ("regex", "y[a-f]s")])
async def test_routes_match_by_method_and_authority_and_headers_and_query_parameters(mesh, kind, value):
    wanted = {kind: value}
    method = {kind: {"yes": "PUT", "ye": "PU", "y[a-f]s": "P[A-Z]T"}[value]}
    authority = {kind: {"yes": "app.shop", "ye": "app.s", "y[a-f]s": r"app\.sh[a-p]+"}[value]}
    assert await said(mesh, {"method": method}, of(method="PUT"), of(method="DELETE")) == [True, False]
    assert await said(mesh, {"authority": authority}, of(at="app.shop"), of()) == [True, False]
    headers = [of(headers={"x-a": "yes"}), of(headers={"x-a": "no"}), of()]
    assert await said(mesh, {"headers": {"x-a": wanted}}, *headers) == [True, False, False]
    assert await said(mesh, {"withoutHeaders": {"x-a": wanted}}, *headers) == [False, True, True]
    queries = [of("/?q=yes"), of("/?q=no"), of()]
    assert await said(mesh, {"queryParams": {"q": wanted}}, *queries) == [True, False, False]


async def test_an_empty_prefix_matches_every_path_and_a_star_in_without_headers_any_value(mesh):
    assert await said(mesh, {"uri": {"prefix": ""}}, of(), of("/a/b?c")) == [True, True]
    headers = [of(headers={"x-a": "yes"}), of(headers={"x-a": ""}), of()]
    assert await said(mesh, {"withoutHeaders": {"x-a": {"regex": "*"}}}, *headers) == [False, False, True]


@proves("VirtualService", "spec.http[].match[].ignoreUriCase")
async def test_a_path_match_ignores_case_with_ignore_uri_case(mesh):
    match = {"uri": {"prefix": "/Path"}, "ignoreUriCase": True}
    assert await said(mesh, match, of("/pATH/x"), of("/other")) == [True, False]
    assert await said(mesh, {"uri": {"prefix": "/Path"}}, of("/pATH/x")) == [False]


@proves("VirtualService", "spec.http[].match[].port")
async def test_a_match_by_port(mesh):
    assert await said(mesh, {"port": 81}, of(at="app:81"), of()) == [True, False]


@proves("VirtualService", "spec.http[].match[].sourceNamespace", "spec.http[].match[].sourceLabels")
async def test_a_match_by_caller(mesh):
    for match in ({"sourceNamespace": "far"}, {"sourceLabels": {"team": "blue"}}):
        assert await said(mesh, match, of()) == [False]
        assert await said(mesh, match, of(at="app.shop"), who="stranger") == [True]


@proves("VirtualService", "spec.http[].match[].gateways", "spec.gateways")
async def test_only_virtual_services_of_the_mesh_gateway_apply_inside_the_mesh(mesh):
    assert await said(mesh, {"gateways": ["mesh"]}, of()) == [True]
    assert await said(mesh, {"gateways": ["edge"]}, of()) == [False]
    await mesh.try_out(virtual_service("app", answer("yes"), gateways=["edge"]))
    assert (await mesh.get("client", "http://app/"))["body"]["path"] == "/"
    await mesh.try_out(virtual_service("app", answer("yes"), gateways=["edge", "mesh"]))
    assert (await mesh.get("client", "http://app/"))["body"] == "yes"


@proves("VirtualService", "spec.exportTo", "spec.hosts")
async def test_a_virtual_service_applies_to_its_hosts_for_callers_in_the_namespaces_of_its_export_to(mesh):
    await mesh.try_out(virtual_service("app", answer("yes"), exportTo=["."]))
    assert (await mesh.get("client", "http://app/"))["body"] == "yes"
    assert (await mesh.get("stranger", "http://app.shop/"))["body"]["path"] == "/"
    assert (await mesh.get("client", "http://other/"))["body"]["path"] == "/"


@proves("VirtualService", "spec.http[].name", "spec.http[].match[].name", "spec.http[].match[].statPrefix")
async def test_routes_have_names_and_stat_prefixes(mesh):
    route = {
        "name": "outer",
        "match": [{"name": "inner", "statPrefix": "watched", "uri": {"prefix": "/named"}}],
        "headers": {"response": {"set": {"x-route": "%ROUTE_NAME%"}}},
        "route": [to("app")],
    }
    await mesh.try_out(virtual_service("app", route, {"route": [to("app")]}))
    assert (await mesh.get("client", "http://app/named"))["headers"]["x-route"] == "outer.inner"
    await mesh.get("client", "http://app/")
    assert await mesh.stat("client", r"^vhost\..*\.route\.watched\.upstream_rq_total$") == 1


@proves("VirtualService", "spec.http[].directResponse.body.bytes")
async def test_a_direct_response_sends_the_body_that_is_given_as_bytes(mesh):
    body = {"bytes": "eWVz"}
    await mesh.try_out(virtual_service("app", {"directResponse": {"status": 203, "body": body}}))
    found = await mesh.get("client", "http://app/")
    assert (found["status"], found["body"]) == (203, "yes")


@proves(
    "VirtualService",
    "spec.http[].redirect.uri",
    "spec.http[].redirect.authority",
    "spec.http[].redirect.scheme",
    "spec.http[].redirect.port",
    "spec.http[].redirect.derivePort",
    "spec.http[].redirect.redirectCode",
)
async def test_redirects(mesh):
    for redirect, status, location in (
        ({"uri": "/new"}, 301, "http://app:81/new?x=1"),
        ({"authority": "elsewhere.example", "redirectCode": 307}, 307, "http://elsewhere.example/old?x=1"),
        ({"scheme": "https"}, 301, "https://app:81/old?x=1"),
        ({"port": 8443, "redirectCode": 302}, 302, "http://app:8443/old?x=1"),
        ({"authority": "else", "derivePort": "FROM_REQUEST_PORT"}, 301, "http://else:81/old?x=1"),
        ({"authority": "else", "derivePort": "FROM_PROTOCOL_DEFAULT"}, 301, "http://else/old?x=1"),
    ):
        await mesh.try_out(virtual_service("app", {"redirect": redirect}))
        found = await mesh.get("client", "http://app:81/old?x=1")
        assert (found["status"], found["headers"]["location"]) == (status, location), redirect


@proves(
    "VirtualService",
    "spec.http[].rewrite.uri",
    "spec.http[].rewrite.authority",
    "spec.http[].rewrite.uriRegexRewrite.match",
    "spec.http[].rewrite.uriRegexRewrite.rewrite",
)
async def test_rewrites(mesh):
    swapped = {"match": "^/([a-z]+)/([a-z]+)(.*)$", "rewrite": r"/\2/\1\3"}
    for rewrite, expected in (
        ({"uriRegexRewrite": swapped}, ("/b/a/c?x=1", "app")),
        ({"uri": "/new", "authority": "else"}, ("/new/b/c?x=1", "else")),
    ):
        route = {"match": [{"uri": {"prefix": "/a"}}], "rewrite": rewrite, "route": [to("app")]}
        await mesh.try_out(virtual_service("app", route))
        body = (await mesh.get("client", "http://app/a/b/c?x=1"))["body"]
        assert (body["path"], body["host"]) == expected


@proves(
    "VirtualService",
    "spec.http[].route[].headers.request.set",
    "spec.http[].route[].headers.request.add",
    "spec.http[].route[].headers.request.remove",
    "spec.http[].route[].headers.response.set",
    "spec.http[].route[].headers.response.add",
    "spec.http[].route[].headers.response.remove",
)
async def test_headers_of_a_destination(mesh):
    changes = {
        "request": {"set": {"x-set": "new"}, "add": {"x-add": "more"}, "remove": ["x-gone"]},
        "response": {"set": {"server-says": "set"}, "add": {"x-added": "yes"}, "remove": ["content-type"]},
    }
    await mesh.try_out(
        virtual_service("app", {"route": [{**to("app", "v1", 50), "headers": changes}, to("app", "v2", 50)]})
    )
    answers = await mesh.requests(
        "client", "http://app/", 30, headers={"x-set": "old", "x-add": "some", "x-gone": "here"}
    )
    for found in answers:
        got = found["body"]["headers"]
        changed = found["body"]["version"] == "v1"
        assert (["x-set", "new"] in got, ["x-gone", "here"] in got) == (changed, not changed)
        assert ("more" in "".join(value for name, value in got if name == "x-add")) == changed
        assert (found["headers"]["server-says"] == "set", "x-added" in found["headers"]) == (changed, changed)
        assert ("content-type" in found["headers"]) == (not changed)
    assert {each["body"]["version"] for each in answers} == {"v1", "v2"}


@proves(
    "VirtualService",
    "spec.http[].route[].destination.host",
    "spec.http[].route[].destination.subset",
    "spec.http[].route[].destination.port.number",
)
async def test_a_route_leads_to_its_host_and_subset_and_port(mesh):
    destination = {"host": "other", "subset": "v1", "port": {"number": 81}}
    await mesh.try_out(virtual_service("app", {"route": [{"destination": destination}]}))
    before = await mesh.stat("client", r"^cluster\.outbound\|81\|v1\|other.*upstream_rq_total$")
    assert (await mesh.get("client", "http://app/"))["body"]["pod"] == mesh.pod("other").name
    assert await mesh.stat("client", r"^cluster\.outbound\|81\|v1\|other.*upstream_rq_total$") == before + 1


@proves(
    "VirtualService",
    "spec.http[].mirror.host",
    "spec.http[].mirror.subset",
    "spec.http[].mirror.port.number",
    "spec.http[].mirrorPercentage.value",
    "spec.http[].mirrors[].destination.host",
    "spec.http[].mirrors[].destination.subset",
    "spec.http[].mirrors[].destination.port.number",
    "spec.http[].mirrors[].percentage.value",
)
async def test_requests_are_mirrored_to_a_host_and_subset_and_port_at_the_configured_percentage(mesh):
    there = {"host": "other", "subset": "v1", "port": {"number": 81}}
    half = {"value": 50}
    for name, mirrors, low, high in (
        ("all", {"mirror": there}, 200, 200),
        ("half", {"mirror": there, "mirrorPercentage": half}, 60, 140),
        ("none", {"mirror": there, "mirrorPercentage": {"value": 0}}, 0, 0),
        (
            "list",
            {"mirrors": [{"destination": there}, {"destination": {"host": "quiet"}, "percentage": half}]},
            200,
            200,
        ),
    ):
        await mesh.try_out(virtual_service("app", {**mirrors, "route": [to("app")]}))
        answers = await mesh.requests("client", f"http://app/{name}", 200)
        assert {each["body"]["version"] for each in answers} <= {"v1", "v2"}

        async def copied(name=name, low=low):
            return await mesh.received("other", f"/{name}") >= low

        await eventually(copied)
        assert await mesh.received("other", f"/{name}") <= high
    assert 60 <= await mesh.received("quiet", "/list") <= 140
    assert await mesh.stat("client", r"^cluster\.outbound\|81\|v1\|other.*upstream_rq_total$") >= 400


@proves(
    "VirtualService",
    "spec.http[].corsPolicy.allowOrigins[].exact",
    "spec.http[].corsPolicy.allowOrigins[].prefix",
    "spec.http[].corsPolicy.allowOrigins[].regex",
    "spec.http[].corsPolicy.allowMethods",
    "spec.http[].corsPolicy.allowHeaders",
    "spec.http[].corsPolicy.exposeHeaders",
    "spec.http[].corsPolicy.maxAge",
    "spec.http[].corsPolicy.allowCredentials",
    "spec.http[].corsPolicy.unmatchedPreflights",
)
async def test_cors_responses_and_preflights_follow_the_cors_policy(mesh):
    policy = {
        "allowOrigins": [{"exact": "http://a"}, {"prefix": "http://b"}, {"regex": "http://c[0-9]"}],
        "allowMethods": ["GET", "PUT"],
        "allowHeaders": ["x-one", "x-two"],
        "exposeHeaders": ["server-says"],
        "maxAge": "90s",
        "allowCredentials": True,
    }
    asked = {"access-control-request-method": "PUT"}
    await mesh.try_out(virtual_service("app", {"corsPolicy": policy, "route": [to("app")]}))
    for origin in ("http://a", "http://bcd", "http://c7"):
        found = await mesh.get("client", "http://app/preflight", method="OPTIONS", headers={**asked, "origin": origin})
        headers = {name: value for name, value in found["headers"].items() if name.startswith("access-control")}
        assert (found["status"], headers) == (200, {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET,PUT",
            "access-control-allow-headers": "x-one,x-two",
            "access-control-expose-headers": "server-says",
            "access-control-max-age": "90",
            "access-control-allow-credentials": "true",
        })  # fmt: skip
    assert await mesh.received("app-v1", "/preflight") + await mesh.received("app-v2", "/preflight") == 0
    found = await mesh.get("client", "http://app/", headers={"origin": "http://a"})
    assert found["headers"]["access-control-allow-origin"] == "http://a"
    assert found["headers"]["access-control-expose-headers"] == "server-says"
    stranger = {"origin": "http://z", **asked}
    found = await mesh.get("client", "http://app/stranger", method="OPTIONS", headers=stranger)
    assert (found["status"], found["body"]["path"]) == (200, "/stranger")  # forwarded: the application responds
    policy["unmatchedPreflights"] = "IGNORE"
    await mesh.try_out(virtual_service("app", {"corsPolicy": policy, "route": [to("app")]}))
    found = await mesh.get("client", "http://app/stranger", method="OPTIONS", headers=stranger)
    assert (found["status"], found["body"]) == (200, "")
    assert "access-control-allow-origin" not in found["headers"]


@proves("VirtualService", "spec.http[].delegate.name", "spec.http[].delegate.namespace")
async def test_a_delegate_of_the_given_name_and_namespace_handles_part_of_the_paths(mesh):
    await mesh.try_out(
        virtual_service(
            "app",
            {"match": [{"uri": {"prefix": "/far"}}], "delegate": {"name": "part", "namespace": "far"}},
            {"match": [{"uri": {"prefix": "/near"}}], "delegate": {"name": "part"}},
            answer("root"),
        ),
        istio(
            "VirtualService",
            "part",
            {"http": [answer("far deep", match=[{"uri": {"prefix": "/far/deep"}}]), answer("far")]},
            namespace="far",
        ),
        istio("VirtualService", "part", {"http": [answer("near")]}),
    )
    for path, word in (("/far/deep/er", "far deep"), ("/far", "far"), ("/near", "near"), ("/", "root")):
        assert (await mesh.get("client", f"http://app{path}"))["body"] == word


async def test_a_regex_of_a_delegate_drops_only_the_route_whose_field_the_root_matches_too(mesh):
    await mesh.try_out(
        virtual_service(
            "app",
            {"match": [{"uri": {"prefix": "/part"}}], "delegate": {"name": "part"}},
            {"match": [{"headers": {"kind": {"regex": "a+"}}}], "delegate": {"name": "part"}},
            answer("root"),
        ),
        istio(
            "VirtualService",
            "part",
            {"http": [
                answer("dropped for /part", match=[{"uri": {"regex": "/part/.*"}}]),
                answer("by method", match=[{"method": {"regex": "PUT|POST"}}]),
            ]},
        ),
    )  # fmt: skip
    for path, method, headers, word in (
        ("/part/x", "GET", {}, "root"),
        ("/part/x", "PUT", {}, "by method"),
        ("/part/x", "GET", {"kind": "aa"}, "dropped for /part"),
        ("/else", "POST", {"kind": "aa"}, "by method"),
        ("/else", "GET", {"kind": "aa"}, "root"),
    ):
        got = await mesh.get("client", f"http://app{path}", method=method, headers=headers)
        assert got["body"] == word, (path, method, headers)


@proves("VirtualService", "spec.exportTo")
async def test_a_delegate_is_used_only_if_exported_to_the_delegating_namespace(mesh):
    """The namespace of the delegating VirtualService counts, not the caller's."""
    root = virtual_service("app", {"delegate": {"name": "part", "namespace": "far"}}, answer("root"))
    for export_to, word in ((["."], "root"), (["shop"], "part"), (["far", "shop"], "part"), (["*"], "part")):
        part = {"http": [answer("part")], "exportTo": export_to}
        await mesh.try_out(root, istio("VirtualService", "part", part, namespace="far"))
        for who in ("client", "stranger"):
            assert (await mesh.get(who, "http://app.shop/"))["body"] == word, (export_to, who)


@proves(
    "VirtualService",
    "spec.http[].fault.abort.grpcStatus",
    "spec.http[].fault.abort.percentage.value",
)
async def test_a_fault_aborts_the_given_percentage_of_calls_with_a_grpc_status(mesh):
    fault = {"abort": {"grpcStatus": "RESOURCE_EXHAUSTED", "percentage": {"value": 100}}}
    await mesh.try_out(virtual_service("app", {"fault": fault, "route": [to("app")]}))
    headers = {"content-type": "application/grpc"}
    found = await mesh.get("client", "http://app/e2e.Echo/Unary", method="POST", headers=headers)
    assert (found["status"], found["headers"]["grpc-status"]) == (200, "8")


@proves("VirtualService", "spec.http[].retries.retryIgnorePreviousHosts")
async def test_a_retry_avoids_the_failed_host_unless_retry_ignore_previous_hosts_is_false(mesh):
    bad = mesh.pod("app-v1").name
    await tell(mesh.sockets, bad, "script", path="/half", forever={"status": 503})
    # Half of the first tries fail. Then Envoy selects up to five times to avoid the failed host, or accepts any.
    # Random, because least-request would prefer the pod that fails at once.
    anybody = istio(
        "DestinationRule", "anybody", {"host": "app", "trafficPolicy": {"loadBalancer": {"simple": "RANDOM"}}}
    )
    for elsewhere, fewest, most in ((True, 0, 6), (False, 9, 50)):
        retries = {"attempts": 1, "retryOn": "5xx", "retryIgnorePreviousHosts": elsewhere}
        await mesh.try_out(anybody, virtual_service("app", {"retries": retries, "route": [to("app")]}))
        answers = await mesh.requests(
            "client", "http://app/half", 100, parallel=2
        )  # the budget permits three concurrent retries
        assert fewest <= sum(each["status"] == 503 for each in answers) <= most
    await tell(mesh.sockets, bad, "script", path="/half")


@proves("VirtualService", "spec.http[].retries.backoff")
async def test_a_retry_waits_for_the_configured_backoff(mesh):
    """Each pause is random up to the interval, which doubles: the chance that all three are below a tenth of it is
    one in ten thousand."""
    for pod in ("app-v1", "app-v2"):
        await mesh.tell(pod, "script", path="/slow", forever={"status": 503})
    retries = {"attempts": 3, "retryOn": "5xx", "backoff": "1s"}
    await mesh.try_out(virtual_service("app", {"retries": retries, "route": [to("app")]}))
    found = await mesh.get("client", "http://app/slow")
    assert found["status"] == 503
    assert found["seconds"] > 0.3
    for pod in ("app-v1", "app-v2"):
        await mesh.tell(pod, "script", path="/slow")


def of_streams(kind, route, match, host="app"):
    asked = {"sniHosts": ["app.shop.svc.cluster.local"]} if kind == "tls" else {}
    routes = [{"match": [{**asked, **match}], "route": route}] if match or asked else [{"route": route}]
    return istio("VirtualService", host, {"hosts": [host], kind: routes})


async def taken(mesh, kind, who="client", count=1, host="app.shop"):
    """The versions that accept connections."""
    port, name = (9443, APP) if kind == "tls" else (9000, "")
    seen = await mesh.tell(who, "names", host=host, port=port, count=count, server_name=name)
    found = Counter()
    for pod, times in seen.items():
        found[pod.rsplit("-", 1)[0] if pod else ""] += times
    return dict(found)


@proves(
    "VirtualService",
    "spec.tcp[].match[].port",
    "spec.tcp[].match[].sourceLabels",
    "spec.tcp[].match[].sourceNamespace",
    "spec.tcp[].match[].gateways",
    "spec.tcp[].match[].destinationSubnets",
    "spec.tls[].match[].port",
    "spec.tls[].match[].sourceLabels",
    "spec.tls[].match[].sourceNamespace",
    "spec.tls[].match[].gateways",
    "spec.tls[].match[].destinationSubnets",
)
@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_tcp_and_tls_routes_match_by_port_and_subnet_and_gateway_and_labels_and_namespace_of_the_source(
    mesh, kind
):
    (address,) = (await mesh.tell("client", "resolve", name="app"))["v4"]
    port = 9443 if kind == "tls" else 9000
    both = {"app-v1", "app-v2"}
    for match, who in (
        ({"port": port}, "client stranger"),
        ({"port": port + 1}, ""),
        ({"sourceLabels": {"team": "blue"}}, "stranger"),
        ({"sourceNamespace": "far"}, "stranger"),
        ({"gateways": ["mesh"]}, "client stranger"),
        ({"gateways": ["edge"]}, ""),
        ({"destinationSubnets": [f"{address}/32"]}, "client stranger"),
        ({"destinationSubnets": ["192.0.2.0/24"]}, ""),
    ):
        await mesh.try_out(of_streams(kind, [to("app", "v2")], match))
        for caller in ("client", "stranger"):
            seen = {*await taken(mesh, kind, caller, count=12, host=address)}
            assert seen == ({"app-v2"} if caller in who.split() else both), (match, caller)


@proves(
    "VirtualService",
    "spec.tcp[].route[].weight",
    "spec.tcp[].route[].destination.host",
    "spec.tcp[].route[].destination.subset",
    "spec.tcp[].route[].destination.port.number",
    "spec.tls[].route[].weight",
    "spec.tls[].route[].destination.host",
    "spec.tls[].route[].destination.subset",
    "spec.tls[].route[].destination.port.number",
)
@pytest.mark.parametrize("kind", ["tcp", "tls"])
async def test_where_connections_go(mesh, kind):
    elsewhere = {"destination": {"host": "other", "subset": "v1", "port": {"number": 9000}}, "weight": 25}
    await mesh.try_out(of_streams(kind, [{**to("app", "v2"), "weight": 75}, elsewhere], {}))
    seen = await taken(mesh, kind, count=100)
    assert {*seen} == {"app-v2", "other"}
    assert 4 <= seen["other"] <= 46  # five standard deviations


@proves("VirtualService", "spec.tls[].match[].sniHosts")
async def test_the_server_name_selects_the_tls_route(mesh):
    names = [f"{name}.example.com" for name in ("one", "two")]
    await mesh.try_out(
        istio("ServiceEntry", "names", {
            "hosts": names, "resolution": "STATIC", "location": "MESH_INTERNAL",
            "addresses": ["240.9.9.9"], "ports": [{"number": 9443, "name": "tls", "protocol": "TLS"}],
            "workloadSelector": {"labels": {"app": "app"}},
        }),
        istio("VirtualService", "names", {
            "hosts": names,
            "tls": [
                {"match": [{"sniHosts": [name]}], "route": [{"destination": {"host": "app", "subset": subset, "port": {"number": 9443}}}]}
                for name, subset in zip(names, ("v1", "v2"), strict=True)
            ],
        }),
    )  # fmt: skip
    for name, expected in zip(names, ("app-v1", "app-v2"), strict=True):
        seen = await mesh.tell("client", "names", host="240.9.9.9", port=9443, count=5, server_name=name)
        assert {pod.rsplit("-", 1)[0] for pod in seen} == {expected}


@proves("VirtualService", "spec.tls[].match[].sniHosts")
@pytest.mark.parametrize("addresses", ([], ["240.9.9.8"]), ids=("no address", "an address"))
async def test_the_server_name_selects_the_tls_route_within_a_wildcard_service_entry(mesh, addresses):
    def to_app(name, subset):
        destination = {"host": "app", "subset": subset, "port": {"number": 9443}}
        return istio("VirtualService", name.replace("*", "all"), {
            "hosts": [name], "tls": [{"match": [{"sniHosts": [name]}], "route": [{"destination": destination}]}],
        })  # fmt: skip

    await mesh.try_out(
        istio("ServiceEntry", "partner", {
            "hosts": ["*.partner.test"], "location": "MESH_EXTERNAL", "addresses": addresses,
            **({"resolution": "NONE"} if not addresses else {"resolution": "STATIC", "endpoints": [{"address": "240.9.9.7"}]}),
            "ports": [{"number": 9443, "name": "tls", "protocol": "TLS"}],
        }),
        to_app("files.partner.test", "v1"),
        to_app("*.eu.partner.test", "v2"),
    )  # fmt: skip
    for name, expected in (("files.partner.test", "app-v1"), ("a.eu.partner.test", "app-v2")):
        seen = await mesh.tell("client", "names", host="240.9.9.8", port=9443, count=5, server_name=name)
        assert {pod.rsplit("-", 1)[0] for pod in seen} == {expected}


async def test_http_routes_hold_inside_the_wildcard_of_a_service_entry(mesh):
    await mesh.try_out(
        istio("ServiceEntry", "partner", {
            "hosts": ["*.partner.test"], "location": "MESH_EXTERNAL", "addresses": ["240.9.9.8"], "resolution": "STATIC",
            "endpoints": [{"address": "240.9.9.7"}], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        }),
        istio("VirtualService", "files", {"hosts": ["files.partner.test"], "http": [answer("exact")]}),
        istio("VirtualService", "eu", {"hosts": ["*.eu.partner.test"], "http": [answer("narrower")]}),
    )  # fmt: skip
    for name, expected in (("files.partner.test", "exact"), ("a.eu.partner.test", "narrower")):
        got = await mesh.get("client", "http://240.9.9.8/", headers={"host": name})
        assert got["body"] == expected
