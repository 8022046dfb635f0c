"""The Gateway API's routes on Services, seen on the wire: what each field does to requests between workloads."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from e2e.commands import weft
from e2e.mesh import tell
from e2e.objects import http_route, istio, service, standard, text, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

PORTS = (
    {"name": "http", "port": 80, "targetPort": 8080},
    {"name": "http-second", "port": 81, "targetPort": 8080},
    {"name": "grpc", "port": 9090},
)


def files(control):
    served = "http=8080 grpc=9090"
    return {
        "clients.yaml": text(
            workload("client", control=control),
            workload("stranger", control=control, namespace="far"),
        ),
        "egress.yaml": text(
            {
                "apiVersion": "weft.dev/v1alpha1",
                "kind": "Workload",
                "metadata": {
                    "name": "egress",
                    "namespace": "shop",
                    "labels": {"app": "egress", "gateway.networking.k8s.io/gateway-name": "egress"},
                },
                "spec": {"gateway": {}},
            },
            service("egress", {"name": "http", "port": 80}, {"name": "tls", "port": 9443}),
        ),
        "app.yaml": text(
            workload("partner", control=control, serve="http=8080 namer=9443"),
            workload("app", control=control, serve=served),
            workload("two", control=control, serve=served, version="v2"),
            workload("away", control=control, serve="http=8080", namespace="far", version="v3"),
            service("app", *PORTS),
            service("two", *PORTS),
            service("away", *PORTS[:1], namespace="far"),
        ),
    }


def backend(name="app", port=80, **more):
    return {"name": name, "port": port, **more}


def rule(*matches, to="app", **more):
    return {"matches": list(matches), "backendRefs": [backend(to)], **more}


def path(value, kind="PathPrefix", **more):
    return {"path": {"type": kind, "value": value}, **more}


def filter_of(kind, **body):
    special = {"URLRewrite": "urlRewrite", "CORS": "cors"}
    return {"type": kind, special.get(kind, kind[0].lower() + kind[1:]): body}


async def who(mesh, target="/", *, at="app", client="client", **arguments):
    """The workload that responds, or the status if no workload does."""
    answer = await mesh.get(client, f"http://{at}{target}", **arguments)
    return answer["body"]["pod"].rpartition("-")[0] if answer["status"] == 200 else answer["status"]


@proves(
    "HTTPRoute",
    "spec.parentRefs[].name",
    "spec.parentRefs[].kind",
    "spec.rules[].matches[].path.type",
    "spec.rules[].matches[].path.value",
    "spec.rules[].backendRefs[].name",
    "spec.rules[].backendRefs[].port",
)
async def test_a_route_of_a_service_selects_the_backend_by_the_most_specific_matching_path(mesh):
    await mesh.try_out(
        http_route(
            "app",
            rule(path("/"), to="app"),
            rule(path("/two"), to="two"),
            rule(path("/two/exact", "Exact"), to="app"),
            rule(path("/t[a-z]+/x.*", "RegularExpression"), to="app"),
        )
    )
    asked = ["/", "/two", "/two/", "/two/y", "/twofold", "/two/exact", "/two/exact/y", "/two/xyz"]
    assert [await who(mesh, each) for each in asked] == ["app", "two", "two", "two", "app", "app", "two", "app"]


@proves(
    "HTTPRoute",
    "spec.rules[].matches[].method",
    "spec.rules[].matches[].headers[].name",
    "spec.rules[].matches[].headers[].value",
    "spec.rules[].matches[].headers[].type",
    "spec.rules[].matches[].queryParams[].name",
    "spec.rules[].matches[].queryParams[].value",
    "spec.rules[].matches[].queryParams[].type",
)
async def test_rules_match_by_method_then_by_headers_then_by_query_parameters(mesh):
    header = {"headers": [{"name": "X-Kind", "value": "a"}]}
    await mesh.try_out(
        http_route(
            "app",
            rule(path("/q", queryParams=[{"name": "q", "value": "1"}]), to="two"),
            rule(path("/q", headers=[{"name": "x-kind", "value": "[a-c]", "type": "RegularExpression"}]), to="app"),
            rule(path("/q", queryParams=[{"name": "r", "value": "[0-9]+", "type": "RegularExpression"}]), to="two"),
            rule(path("/m", **header), to="app"),
            rule(path("/m", method="PUT"), to="two"),
        )
    )
    assert await who(mesh, "/q?q=1") == "two"
    assert await who(mesh, "/q?q=1", headers={"x-kind": "b"}) == "app"
    assert await who(mesh, "/q?r=17") == "two"
    assert await who(mesh, "/q?r=x") == 404
    assert await who(mesh, "/m", headers={"x-kind": "a"}) == "app"
    assert await who(mesh, "/m", headers={"x-kind": "a"}, method="PUT") == "two"
    assert await who(mesh, "/m") == 404


@proves(
    "HTTPRoute",
    "spec.rules[].backendRefs[].weight",
    "spec.rules[].backendRefs[].group",
    "spec.rules[].backendRefs[].kind",
)
async def test_requests_are_split_by_weight_and_the_share_of_an_invalid_backend_gets_500(mesh):
    shares = [backend("app", weight=2), backend("two", weight=1), backend("nobody", weight=1), backend("two", weight=0)]
    await mesh.try_out(http_route("app", {"backendRefs": shares}))
    answers = await mesh.requests("client", "http://app/", 800, parallel=16)
    seen = Counter(each["body"]["version"] if each["status"] == 200 else each["status"] for each in answers)
    # Binomial, n 800: five standard deviations are 71 for p 1/2 and 62 for p 1/4.
    assert 329 <= seen["v1"] <= 471, seen
    assert 138 <= seen["v2"] <= 262, seen
    assert 138 <= seen[500] <= 262, seen
    pool = {"matches": [path("/pool")], "backendRefs": [backend("app", kind="Pool")]}
    foreign = {"matches": [path("/foreign")], "backendRefs": [backend("app", group="example.com")]}
    nobody = {"backendRefs": [backend("nobody")]}
    await mesh.try_out(http_route("app", nobody, rule(path("/port"), to="two"), pool, foreign))
    found = [await who(mesh, each) for each in ("/", "/port", "/pool", "/foreign")]
    assert found == [500, "two", 500, 500]


async def test_a_rule_without_backends_is_for_the_service_itself(mesh):
    change = filter_of("ResponseHeaderModifier", set=[{"name": "x-said", "value": "100% so"}])
    await mesh.try_out(http_route("app", {"matches": [path("/own")], "filters": [change]}))
    answer = await mesh.get("client", "http://app/own")
    assert (answer["status"], answer["headers"]["x-said"]) == (200, "100% so")
    assert await who(mesh, "/else") == 404


@proves("HTTPRoute", "spec.parentRefs[].port")
async def test_a_parent_ref_with_a_port_limits_the_route_to_that_port(mesh):
    parent = {"group": "", "kind": "Service", "name": "app", "port": 81}
    await mesh.try_out(http_route("app", rule(path("/two"), to="two"), parent=parent))
    assert [await who(mesh, "/two", at="app:81"), await who(mesh, "/x", at="app:81")] == ["two", 404]
    assert await who(mesh, "/two") == "app"


@proves("HTTPRoute", "spec.parentRefs[].group")
@proves("GRPCRoute", "spec.parentRefs[].group")
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
async def test_a_parent_ref_with_another_group_than_that_of_services_has_no_effect(mesh, kind):
    parent = {"kind": "Service", "name": "app"}
    made = http_route("app", {"backendRefs": [backend("two")]}, parent={**parent, "group": "", "port": 81})
    made["spec"]["parentRefs"].append({**parent, "group": "example.com"})
    await mesh.try_out(made | {"kind": kind})
    assert [await who(mesh, at="app:81"), await who(mesh)] == ["two", "app"]


@proves("HTTPRoute", "spec.parentRefs[].namespace", "spec.rules[].backendRefs[].namespace")
async def test_a_consumer_route_with_its_own_backend_replaces_the_producer_route_in_its_namespace(mesh):
    away = {"backendRefs": [backend("away", namespace="far")]}
    await mesh.try_out(http_route("app", rule(path("/"), to="two")), http_route("app", away, namespace="far"))
    assert await who(mesh) == "two"
    assert await who(mesh, at="app.shop", client="stranger") == "away"
    await mesh.try_out(http_route("app", rule(path("/"), to="two")))
    assert await who(mesh, at="app.shop", client="stranger") == "two"
    elsewhere = {"backendRefs": [backend("two", namespace="shop")]}
    await mesh.try_out(http_route("app", elsewhere, namespace="far"))
    assert await who(mesh, at="app.shop", client="stranger") == "two"


async def test_consumers_change_nothing_but_their_own_calls_and_ports(mesh):
    """Also by a GRPCRoute, which has only a port; where the consumer's routes do not match, the producer's apply."""
    parent = {"group": "", "kind": "Service", "name": "app", "namespace": "shop", "port": 81}
    producers = http_route("app", rule(path("/"), to="two"))
    consumers = http_route("app", {"backendRefs": [backend("away", namespace="far")]}, namespace="far", parent=parent)
    calls = grpc_route({"backendRefs": [backend("away", namespace="far")]})
    calls["metadata"]["namespace"] = "elsewhere"
    calls["spec"]["parentRefs"][0]["namespace"] = "shop"
    await mesh.try_out(producers, consumers, calls)
    assert await who(mesh) == "two"
    assert await who(mesh, at="app.shop", client="stranger") == "two"
    assert await who(mesh, at="app.shop:81", client="stranger") == "away"


@pytest.mark.parametrize("headers", [{}, {"Host": "two"}, {"Host": "example.com"}])
async def test_routes_of_a_service_apply_to_its_addresses_whatever_host_a_request_names(mesh, headers):
    """A request to another service that names this service is not for these routes."""
    set_header = filter_of("ResponseHeaderModifier", set=[{"name": "x-routed", "value": "yes"}])
    await mesh.try_out(http_route("app", {"filters": [set_header], "backendRefs": [backend("app")]}))
    answer = await mesh.get("client", "http://app/", headers=headers)
    assert (answer["body"]["pod"].rpartition("-")[0], answer["headers"].get("x-routed")) == ("app", "yes")
    answer = await mesh.get("client", "http://two/", headers={"Host": "app"})
    assert answer["status"] == 200, answer
    assert (answer["body"]["pod"].rpartition("-")[0], answer["headers"].get("x-routed")) == ("two", None)
    at = f"--mesh {mesh.engine.name}"
    said = await weft(f"weft explain client --to http://app/ {at}", mesh.directory)
    assert "HTTPRoute shop/app" in said, said
    said = await weft(f"weft explain client --to http://two/ -H 'Host: app' {at}", mesh.directory)
    assert "HTTPRoute shop/app" not in said, said
    (called,) = (each for each in mesh.control.mesh.services() if each.host == "app.shop.svc.cluster.local")
    said = await weft(f"weft why client listener {called.addresses[0]}_80 {at}", mesh.directory)
    assert "routes-by-address" in said, said


async def test_a_virtual_service_takes_precedence_over_an_http_route(mesh):
    answer = {"directResponse": {"status": 418}}
    await mesh.try_out(virtual_service("app", answer), http_route("app", rule(path("/"), to="two")))
    assert await who(mesh) == 418
    assert any("the http routes for app.shop.svc.cluster.local are not used" in each for each in mesh.problems())


@proves(
    "HTTPRoute",
    "spec.rules[].filters[].type",
    "spec.rules[].filters[].requestHeaderModifier.set[].name",
    "spec.rules[].filters[].requestHeaderModifier.set[].value",
    "spec.rules[].filters[].requestHeaderModifier.add[].name",
    "spec.rules[].filters[].requestHeaderModifier.add[].value",
    "spec.rules[].filters[].requestHeaderModifier.remove",
    "spec.rules[].filters[].responseHeaderModifier.set[].name",
    "spec.rules[].filters[].responseHeaderModifier.set[].value",
    "spec.rules[].filters[].responseHeaderModifier.add[].name",
    "spec.rules[].filters[].responseHeaderModifier.add[].value",
    "spec.rules[].filters[].responseHeaderModifier.remove",
    "spec.rules[].backendRefs[].filters[].type",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.set[].name",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.set[].value",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.add[].name",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.add[].value",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.remove",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.set[].name",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.set[].value",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.add[].name",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.add[].value",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.remove",
)
@proves(
    "GRPCRoute",
    "spec.rules[].filters[].type",
    "spec.rules[].filters[].requestHeaderModifier.set[].name",
    "spec.rules[].filters[].requestHeaderModifier.set[].value",
    "spec.rules[].filters[].requestHeaderModifier.add[].name",
    "spec.rules[].filters[].requestHeaderModifier.add[].value",
    "spec.rules[].filters[].requestHeaderModifier.remove",
    "spec.rules[].filters[].responseHeaderModifier.set[].name",
    "spec.rules[].filters[].responseHeaderModifier.set[].value",
    "spec.rules[].filters[].responseHeaderModifier.add[].name",
    "spec.rules[].filters[].responseHeaderModifier.add[].value",
    "spec.rules[].filters[].responseHeaderModifier.remove",
    "spec.rules[].backendRefs[].filters[].type",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.set[].name",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.set[].value",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.add[].name",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.add[].value",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.remove",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.set[].name",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.set[].value",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.add[].name",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.add[].value",
    "spec.rules[].backendRefs[].filters[].responseHeaderModifier.remove",
)
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
async def test_header_modifiers_of_rules_and_backends_change_requests_and_responses(mesh, kind):
    def changes(word):
        changed = {
            "set": [{"name": f"x-{word}-set", "value": "%set%"}],
            "add": [{"name": f"x-{word}-add", "value": "more"}],
        }
        return [
            filter_of("RequestHeaderModifier", **changed, remove=[f"x-{word}-gone"]),
            filter_of("ResponseHeaderModifier", **changed, remove=["server-says"]),
        ]

    for filters in ({"filters": changes("rule")}, {"backendRefs": [backend(filters=changes("backend"))]}):
        word = "rule" if "filters" in filters else "backend"
        await mesh.try_out(http_route("app", {"backendRefs": [backend()], **filters}) | {"kind": kind})
        sent = {f"x-{word}-set": "old", f"x-{word}-add": "one", f"x-{word}-gone": "here", "x-kept": "yes"}
        answer = await mesh.get("client", "http://app/", headers=sent)
        arrived = [tuple(each) for each in answer["body"]["headers"]]
        assert {(f"x-{word}-set", "%set%"), ("x-kept", "yes")} <= set(arrived)
        assert (f"x-{word}-set", "old") not in arrived
        added = ",".join(value for name, value in arrived if name == f"x-{word}-add")
        assert added.replace(" ", "") == "one,more"
        assert f"x-{word}-gone" not in dict(arrived)
        assert (answer["headers"][f"x-{word}-set"], answer["headers"][f"x-{word}-add"]) == ("%set%", "more")
        assert "server-says" not in answer["headers"]


@proves(
    "HTTPRoute",
    "spec.rules[].filters[].requestRedirect.scheme",
    "spec.rules[].filters[].requestRedirect.hostname",
    "spec.rules[].filters[].requestRedirect.port",
    "spec.rules[].filters[].requestRedirect.statusCode",
    "spec.rules[].filters[].requestRedirect.path.type",
    "spec.rules[].filters[].requestRedirect.path.replaceFullPath",
    "spec.rules[].filters[].requestRedirect.path.replacePrefixMatch",
)
@pytest.mark.parametrize(
    ("redirect", "target", "status", "location"),
    [
        ({"hostname": "there.example.com"}, "/r/x?q=1", 302, "http://there.example.com/r/x?q=1"),
        ({"scheme": "https", "statusCode": 301}, "/r", 301, "https://app/r"),
        ({"scheme": "https", "port": 8443}, "/r", 302, "https://app:8443/r"),
        ({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/full"}, "statusCode": 308}, "/r/x?q=1", 308,
         "http://app/full?q=1"),
        ({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}, "/r/x", 302, "http://app/new/x"),
        ({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}, "/r/x", 302, "http://app/x"),
        ({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new/"}}, "/r", 302, "http://app/new"),
    ],
)  # fmt: skip
async def test_the_callers_proxy_answers_with_the_configured_redirect(mesh, redirect, target, status, location):
    await mesh.try_out(
        http_route("app", {"matches": [path("/r")], "filters": [filter_of("RequestRedirect", **redirect)]})
    )
    answer = await mesh.get("client", f"http://app{target}")
    assert (answer["status"], answer["headers"]["location"]) == (status, location)


async def test_a_redirect_to_another_scheme_takes_its_port(mesh):
    redirect = filter_of("RequestRedirect", scheme="https")
    await mesh.try_out(http_route("app", {"matches": [path("/r")], "filters": [redirect]}))
    answer = await mesh.get("client", "http://app:81/r")
    assert answer["headers"]["location"] == "https://app:443/r"


@proves(
    "HTTPRoute",
    "spec.rules[].filters[].urlRewrite.hostname",
    "spec.rules[].filters[].urlRewrite.path.type",
    "spec.rules[].filters[].urlRewrite.path.replaceFullPath",
    "spec.rules[].filters[].urlRewrite.path.replacePrefixMatch",
)
@pytest.mark.parametrize(
    ("prefix", "kind", "new", "target", "arrives"),
    [
        ("/a", "Prefix", "/b", "/a/x?q=1", "/b/x?q=1"),
        ("/a", "Prefix", "/b", "/a", "/b"),
        ("/a", "Prefix", "/b/", "/a/", "/b/"),
        ("/a", "Prefix", "/b/", "/a/x", "/b/x"),
        ("/a", "Prefix", "/", "/a/x", "/x"),
        ("/a", "Prefix", "/", "/a", "/"),
        ("/a/", "Prefix", "/b", "/a/x", "/b/x"),
        ("/", "Prefix", "/b", "/x", "/b/x"),
        ("/", "Prefix", "/", "/x", "/x"),
        ("/a", "Full", "/whole", "/a/x/y?q=1", "/whole?q=1"),
    ],
)
async def test_paths_and_hosts_are_rewritten(mesh, prefix, kind, new, target, arrives):
    field = {"Prefix": "replacePrefixMatch", "Full": "replaceFullPath"}[kind]
    changed = {"type": field[0].upper() + field[1:], field: new}
    rewrite = filter_of("URLRewrite", hostname="other.example.com", path=changed)
    await mesh.try_out(http_route("app", rule(path(prefix), filters=[rewrite])))
    answer = await mesh.get("client", f"http://app{target}")
    assert (answer["body"]["path"], answer["body"]["host"]) == (arrives, "other.example.com")


@proves(
    "HTTPRoute",
    "spec.rules[].filters[].requestMirror.backendRef.name",
    "spec.rules[].filters[].requestMirror.backendRef.port",
    "spec.rules[].filters[].requestMirror.backendRef.namespace",
    "spec.rules[].filters[].requestMirror.percent",
    "spec.rules[].filters[].requestMirror.fraction.numerator",
    "spec.rules[].filters[].requestMirror.fraction.denominator",
)
@proves(
    "GRPCRoute",
    "spec.rules[].filters[].requestMirror.backendRef.name",
    "spec.rules[].filters[].requestMirror.backendRef.port",
    "spec.rules[].filters[].requestMirror.backendRef.namespace",
    "spec.rules[].filters[].requestMirror.percent",
    "spec.rules[].filters[].requestMirror.fraction.numerator",
    "spec.rules[].filters[].requestMirror.fraction.denominator",
)
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
@pytest.mark.parametrize(
    ("share", "least", "most"),
    [({}, 100, 100), ({"percent": 50}, 25, 75), ({"fraction": {"numerator": 1, "denominator": 2}}, 25, 75),
     ({"percent": 0}, 0, 0)],
)  # fmt: skip
async def test_requests_are_mirrored_to_a_backend_at_the_configured_percent_or_fraction(mesh, share, least, most, kind):
    mirror = filter_of("RequestMirror", backendRef=backend("away", namespace="far"), **share)
    await mesh.try_out(http_route("app", {"backendRefs": [backend()], "filters": [mirror]}) | {"kind": kind})
    target = f"/{kind}-{least}-{len(str(share))}"
    assert await who(mesh, target + "-first") == "app"
    answers = await mesh.requests("client", f"http://app{target}", 100)
    assert {each["body"]["version"] for each in answers} == {"v1"}

    # the request does not wait for its copies
    await eventually(lambda: mesh.received("away", target), lambda value: value >= least)
    assert await mesh.received("away", target) <= most


@proves(
    "HTTPRoute",
    "spec.rules[].filters[].requestMirror.backendRef.group",
    "spec.rules[].filters[].requestMirror.backendRef.kind",
)
@proves(
    "GRPCRoute",
    "spec.rules[].filters[].requestMirror.backendRef.group",
    "spec.rules[].filters[].requestMirror.backendRef.kind",
)
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
@pytest.mark.parametrize("reference", [{"group": "example.com"}, {"kind": "Pool"}])
async def test_only_services_get_copies(mesh, reference, kind):
    """When the second mirror has all of its copies, the first would have its copies, too."""
    backends = backend("two", **reference), backend("away", namespace="far")
    mirrors = [filter_of("RequestMirror", backendRef=each) for each in backends]
    await mesh.try_out(http_route("app", {"backendRefs": [backend()], "filters": mirrors}) | {"kind": kind})
    target = f"/{kind}-{'-'.join(reference)}"
    await mesh.requests("client", f"http://app{target}", 20)
    await eventually(lambda: mesh.received("away", target), lambda value: value >= 20)
    assert await mesh.received("two", target) == 0


@proves(
    "HTTPRoute",
    "spec.rules[].timeouts.request",
    "spec.rules[].timeouts.backendRequest",
    "spec.rules[].retry.codes",
    "spec.rules[].retry.attempts",
)
async def test_timeouts_and_retries(mesh):
    await tell(mesh.sockets, mesh.pod("app").name, "script", path="/slow", forever={"delay": 5})
    for timeouts in ({"request": "200ms"}, {"backendRequest": "200ms"}, {"request": "3s", "backendRequest": "200ms"}):
        await mesh.try_out(http_route("app", rule(path("/"), timeouts=timeouts)))
        answer = await mesh.get("client", "http://app/slow")
        assert answer["status"] == 504
        assert answer["seconds"] < 3
    retry = {"codes": [503], "attempts": 3, "backoff": "1ms"}
    await mesh.try_out(http_route("app", rule(path("/"), retry=retry, timeouts={"request": "0s"})))
    for failures, status in ((3, 200), (4, 503)):
        await tell(mesh.sockets, mesh.pod("app").name, "script", path="/busy", steps=[{"status": 503}] * failures)
        assert (await mesh.get("client", "http://app/busy"))["status"] == status
    await tell(mesh.sockets, mesh.pod("app").name, "script", path="/busy", steps=[{"status": 502}])
    assert (await mesh.get("client", "http://app/busy"))["status"] == 502


@proves("HTTPRoute", "spec.rules[].retry.backoff")
async def test_a_retry_waits_for_the_configured_backoff(mesh):
    """Each pause is random up to the interval, which doubles: the chance that all three are below a tenth of it is
    one in ten thousand."""
    await tell(mesh.sockets, mesh.pod("app").name, "script", path="/wait", forever={"status": 503})
    retry = {"codes": [503], "attempts": 3, "backoff": "1s"}
    await mesh.try_out(http_route("app", rule(path("/"), retry=retry)))
    found = await mesh.get("client", "http://app/wait")
    assert found["status"] == 503
    assert found["seconds"] > 0.3


@proves(
    "HTTPRoute",
    "spec.rules[].filters[].cors.allowOrigins",
    "spec.rules[].filters[].cors.allowMethods",
    "spec.rules[].filters[].cors.allowHeaders",
    "spec.rules[].filters[].cors.exposeHeaders",
    "spec.rules[].filters[].cors.allowCredentials",
    "spec.rules[].filters[].cors.maxAge",
)
async def test_cors_responses_follow_the_cors_filter(mesh):
    cors = filter_of(
        "CORS",
        allowOrigins=["https://*.example.com", "https://one.example.org"],
        allowMethods=["GET", "PUT"],
        allowHeaders=["x-asked"],
        exposeHeaders=["x-shown"],
        allowCredentials=True,
        maxAge=60,
    )
    await mesh.try_out(http_route("app", rule(path("/"), filters=[cors])))

    async def preflight(origin):
        headers = {"origin": origin, "access-control-request-method": "PUT"}
        return await mesh.get("client", "http://app/", method="OPTIONS", headers=headers)

    for origin in ("https://a.example.com", "https://one.example.org"):
        answer = (await preflight(origin))["headers"]
        assert answer["access-control-allow-origin"] == origin
        assert answer["access-control-allow-methods"] == "GET,PUT"
        assert answer["access-control-allow-headers"] == "x-asked"
        assert answer["access-control-allow-credentials"] == "true"
        assert answer["access-control-max-age"] == "60"
    for origin in ("https://example.net", "https://two.example.org"):
        assert "access-control-allow-origin" not in (await preflight(origin))["headers"]
    answer = await mesh.get("client", "http://app/", headers={"origin": "https://a.example.com"})
    assert answer["headers"]["access-control-expose-headers"] == "x-shown"


def grpc_route(*rules):
    parent = {"group": "", "kind": "Service", "name": "app"}
    return standard("GRPCRoute", "app", {"parentRefs": [parent], "rules": list(rules)})


async def callee(mesh):
    answers = await mesh.tell("client", "grpc_unary", target="app:9090", count=4)
    return {answer.removeprefix("hello from ").rpartition("-")[0] for answer in answers}


@proves(
    "GRPCRoute",
    "spec.parentRefs[].name",
    "spec.parentRefs[].kind",
    "spec.rules[].matches[].method.type",
    "spec.rules[].matches[].method.service",
    "spec.rules[].matches[].method.method",
    "spec.rules[].backendRefs[].name",
    "spec.rules[].backendRefs[].port",
    "spec.rules[].backendRefs[].weight",
)
@pytest.mark.parametrize(
    ("method", "taken"),
    [
        ({"service": "e2e.Echo", "method": "Unary"}, True),
        ({"service": "e2e.Echo"}, True),
        ({"method": "Unary"}, True),
        ({"type": "RegularExpression", "service": "e2e[.].*", "method": "Un.*"}, True),
        ({"type": "RegularExpression", "method": "U.*"}, True),
        ({"service": "e2e.Ech"}, False),
        ({"service": "e2e.Echo", "method": "Both"}, False),
        ({"type": "RegularExpression", "service": "Echo"}, False),
    ],
)
async def test_a_grpc_route_of_a_service_selects_the_backend_by_grpc_service_and_method(mesh, method, taken):
    two = [backend("two", 9090), backend("app", 9090, weight=0)]
    await mesh.try_out(grpc_route({"backendRefs": [backend("app", 9090)]}, {
        "matches": [{"method": method}], "backendRefs": two}))  # fmt: skip
    assert await callee(mesh) == {"two" if taken else "app"}


@proves("GRPCRoute", "spec.rules[].backendRefs[].group", "spec.rules[].backendRefs[].kind")
@pytest.mark.parametrize("reference", [{"group": "example.com"}, {"kind": "Pool"}])
async def test_grpc_calls_to_a_backend_that_is_not_a_service_fail(mesh, reference):
    await mesh.try_out(grpc_route({"backendRefs": [backend("two", **reference)]}))
    assert await who(mesh, "/e2e.Echo/Said", method="POST") == 500


async def test_a_grpc_route_takes_precedence_over_an_http_route(mesh):
    await mesh.try_out(
        grpc_route({"backendRefs": [backend("two", 9090)]}), http_route("app", rule(path("/"), to="app"))
    )
    assert await callee(mesh) == {"two"}


@proves(
    "GRPCRoute",
    "spec.rules[].matches[].headers[].name",
    "spec.rules[].matches[].headers[].value",
    "spec.rules[].matches[].headers[].type",
    "spec.rules[].filters[].type",
    "spec.rules[].filters[].requestHeaderModifier.set[].name",
    "spec.rules[].filters[].requestHeaderModifier.set[].value",
    "spec.rules[].filters[].responseHeaderModifier.add[].name",
    "spec.rules[].filters[].responseHeaderModifier.add[].value",
    "spec.rules[].filters[].requestMirror.backendRef.name",
    "spec.rules[].filters[].requestMirror.backendRef.port",
    "spec.rules[].backendRefs[].filters[].type",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.set[].name",
    "spec.rules[].backendRefs[].filters[].requestHeaderModifier.set[].value",
)
async def test_grpc_routes_match_and_modify_calls_as_http_routes_do(mesh):
    """Uses plain requests: a gRPC call is a POST to /SERVICE/METHOD, and this server returns what it received."""
    changes = [
        filter_of("RequestHeaderModifier", set=[{"name": "x-rule", "value": "yes"}]),
        filter_of("ResponseHeaderModifier", add=[{"name": "x-back", "value": "yes"}]),
        filter_of("RequestMirror", backendRef=backend("two")),
    ]
    own = filter_of("RequestHeaderModifier", set=[{"name": "x-own", "value": "yes"}])
    kind = {"name": "x-kind", "value": "a+", "type": "RegularExpression"}
    await mesh.try_out(
        grpc_route(
            {"matches": [{"headers": [kind]}], "filters": changes, "backendRefs": [backend("app", filters=[own])]}
        )
    )
    answer = await mesh.get("client", "http://app/e2e.Echo/Said", method="POST", headers={"x-kind": "aaa"})
    assert {("x-rule", "yes"), ("x-own", "yes")} <= {tuple(each) for each in answer["body"]["headers"]}
    assert answer["headers"]["x-back"] == "yes"
    await eventually(lambda: mesh.received("two", "/e2e.Echo/Said"))
    assert await who(mesh, "/e2e.Echo/Said", method="POST", headers={"x-kind": "b"}) == 404


LOGGED = {
    "apiVersion": "telemetry.istio.io/v1",
    "kind": "Telemetry",
    "metadata": {"name": "logged", "namespace": "istio-system"},
    "spec": {"accessLogging": [{"providers": [{"name": "envoy"}]}]},
}


@proves("HTTPRoute", "spec.rules[].name")
@proves("GRPCRoute", "spec.rules[].name")
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
async def test_the_access_log_names_the_route_rule_of_a_request(mesh, kind):
    """The second rule is logged by its index, because it has no name."""
    named = {"name": "the-named-one", "matches": [{"headers": [{"name": "x-named", "value": "yes"}]}]}
    rules = [{**named, "backendRefs": [backend()]}, {"backendRefs": [backend()]}]
    await mesh.try_out(LOGGED, http_route("app", *rules) | {"kind": kind})
    await mesh.get("client", f"http://app/{kind}.by/Name", headers={"x-named": "yes"})
    await mesh.get("client", f"http://app/{kind}.by/Place")
    said = ""
    async with asyncio.timeout(40):
        while f"/{kind}.by/Name" not in said or f"/{kind}.by/Place" not in said:  # Envoy flushes it with a delay
            said = await weft(f"weft logs --proxy client --mesh {mesh.engine.name}", mesh.directory)
    by_path = {word: line for line in said.splitlines() for word in ("Name", "Place") if f"/{kind}.by/{word}" in line}
    assert " the-named-one " in f"{by_path['Name']} ", by_path
    assert " shop.app.1 " in f"{by_path['Place']} ", by_path


async def test_every_command_knows_the_routes(mesh):
    """Each route is shown with its object and line."""
    await mesh.try_out(http_route("app", rule(path("/two"), to="two"), {"backendRefs": [backend("nobody")]}))
    at = f"--mesh {mesh.engine.name}"
    said = await weft(f"weft explain client --to http://app/two/x {at}", mesh.directory)
    assert "two" in said and "HTTPRoute shop/app" in said, said
    said = await weft(f"weft describe service app {at}", mesh.directory)
    assert "HTTPRoute: shop/app" in said and "path is or is below /two" in said, said
    said = await weft(f"weft why client route app.shop.svc.cluster.local:80 {at}", mesh.directory)
    assert "HTTPRoute shop/app" in said, said
    said = await weft(f"weft analyze {mesh.directory}", mesh.directory)
    assert "WFT0902" in said and "Service shop/nobody does not exist (BackendNotFound)" in said, said


PARTNER = {"group": "networking.istio.io", "kind": "ServiceEntry", "name": "partner"}
AS_HOST = {"group": "networking.istio.io", "kind": "Hostname", "name": "api.partner.test"}
MARK = {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "by", "value": "egress"}]}}


async def test_calls_to_a_service_entry_go_through_the_egress_gateway(mesh):
    def attached(kind, name, parent, rules, **more):
        return standard(kind, name, {"parentRefs": [parent], "rules": rules, **more})

    gateway = {"name": "egress"}
    await mesh.try_out(
        istio("ServiceEntry", "partner", {
            "hosts": ["api.partner.test"], "addresses": ["240.9.9.20"], "resolution": "STATIC",
            "ports": [
                {"number": 80, "name": "http", "protocol": "HTTP", "targetPort": 8080},
                {"number": 9443, "name": "tls", "protocol": "TLS"},
            ],
            "workloadSelector": {"labels": {"app": "partner"}},
        }),
        standard("Gateway", "egress", {"gatewayClassName": "weft", "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP"},
            {"name": "tls", "port": 9443, "protocol": "TLS", "tls": {"mode": "Passthrough"}, "hostname": "api.partner.test"},
        ]}),
        attached("HTTPRoute", "to-gateway", PARTNER, [{"backendRefs": [backend("egress")]}]),
        attached("HTTPRoute", "from-gateway", {**gateway, "sectionName": "http"},
                 [{"backendRefs": [{**AS_HOST, "port": 80}], "filters": [MARK]}], hostnames=["api.partner.test"]),
        attached("TLSRoute", "to-gateway", PARTNER, [{"backendRefs": [backend("egress", 9443)]}],
                 hostnames=["api.partner.test"]),
        attached("TLSRoute", "from-gateway", {**gateway, "sectionName": "tls"},
                 [{"backendRefs": [{**AS_HOST, "port": 9443}]}], hostnames=["api.partner.test"]),
    )  # fmt: skip
    answer = await mesh.get("client", "http://240.9.9.20/", headers={"host": "api.partner.test"})
    assert (answer["status"], answer["headers"].get("by")) == (200, "egress")
    assert answer["body"]["pod"].startswith("partner-")
    to_gateway = r"outbound.9443..egress.*upstream_cx_total"
    before = sum((await mesh.stats("client-0", to_gateway)).values())
    names = await mesh.tell("client", "names", host="240.9.9.20", port=9443, count=3, server_name="api.partner.test")
    assert {name.rpartition("-")[0] for name in names} == {"partner"}
    assert sum((await mesh.stats("client-0", to_gateway)).values()) == before + 3
