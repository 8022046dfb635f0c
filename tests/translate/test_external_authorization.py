import contextlib
from datetime import timedelta

import msgspec
import pytest

from model.builders import instance, service
from translate.authorizers import grpc_authorizer, http_authorizer
from translate.policy_rig import Request, rig
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Operation, Source
from weft.model.extension_provider import Authorizer, CheckedBody
from weft.model.service import Protocol
from weft.model.settings import Settings

HOST = "checker.shop.svc.cluster.local"


def custom(provider, *rules, **more):
    name = more.pop("name", provider)
    return AuthorizationPolicy(
        name, "shop", Action.CUSTOM, provider=provider, rules=rules or (AuthorizationRule(),), **more
    )


def on(*paths, **more):
    return AuthorizationRule(operations=(Operation(paths=paths, **more),))


@contextlib.asynccontextmanager
async def asking(sets, *providers, http=None, grpc=None):
    """Before the authorizers at these ports of loopback; both stand behind services of the mesh."""
    there = [
        service("checker-grpc", port=9000, target=grpc or 1, protocol=Protocol.GRPC),
        instance("checker-grpc-0", "checker-grpc", address="127.0.0.1"),
        service("checker-http", port=8000, target=http or 1),
        instance("checker-http-0", "checker-http", address="127.0.0.1"),
    ]
    async with rig(sets, Settings(extension_providers=providers), there) as one:
        yield one


def http_provider(name="http", **more):
    return Authorizer(name=name, host="checker-http.shop.svc.cluster.local", port=8000, **more)


def grpc_provider(name="grpc", **more):
    return Authorizer(name=name, host="checker-grpc.shop.svc.cluster.local", port=9000, grpc=True, **more)


def user(name, **more):
    return Request(headers=[("x-user", name), *more.pop("headers", [])], **more)


async def test_an_http_authorizer_decides_about_what_the_rules_match_and_nothing_else():
    provider = http_provider(request_headers=("x-user",))
    async with http_authorizer() as (port, asked), asking([[custom("http", on("/ask/*"))]], provider, http=port) as one:
        assert (await one.send(0, user("good", path="/ask/1"))).status == 200
        denied = await one.send(0, user("bad", path="/ask/1"))
        assert (denied.status, denied.body) == (401, "who?")
        assert len(asked) == 2
        assert (await one.send(0, user("bad", path="/free"))).status == 200
        assert len(asked) == 2
        assert (await one.send(0, user("bad", path="//ask//1"))).status == 401


async def test_an_http_authorizer_gets_and_gives_only_the_headers_that_are_listed():
    provider = http_provider(
        path_prefix="/check",
        request_headers=("x-user", "x-ext-*"),
        additional_headers=(("x-mesh", "weft"),),
        upstream_headers_on_allow=("x-checked",),
        downstream_headers_on_allow=("set-cookie",),
        downstream_headers_on_deny=("www-*",),
    )
    async with http_authorizer() as (port, asked), asking([[custom("http")]], provider, http=port) as one:
        sent = [("x-ext-one", "1"), ("x-other", "2")]
        allowed = await one.send(0, user("good", path="/a?b=c", headers=sent))
        head, _ = asked[0]
        assert head.startswith("get /check/a?b=c http/1.1")
        assert "x-ext-one: 1" in head and "x-mesh: weft" in head and "x-other" not in head
        assert "x-checked: yes" in allowed.body and "x-hidden" not in allowed.body
        assert "set-cookie: a=b" in allowed.head and "x-checked" not in allowed.head
        denied = await one.send(0, user("bad"))
        assert "www-authenticate: Basic" in denied.head and "x-hidden" not in denied.head


async def test_an_http_authorizer_gets_the_body_if_configured():
    provider = http_provider(request_headers=("x-user",), body=CheckedBody(1024))
    async with http_authorizer() as (port, asked), asking([[custom("http")]], provider, http=port) as one:
        assert (await one.send(0, user("good", method="POST", body=b"hello"))).status == 200
        assert asked[0][1] == "hello"
        assert (await one.send(0, user("good", method="POST", body=b"x" * 2000))).status == 413


async def test_a_grpc_authorizer_decides_about_requests_and_connections():
    async with grpc_authorizer() as (port, asked), asking([[custom("grpc")]], grpc_provider(), grpc=port) as one:
        allowed = await one.send(0, user("good", path="/a"))
        assert allowed.status == 200 and "x-checked: yes" in allowed.body
        assert asked[0].attributes.request.http.path == "/a"
        assert (await one.send(0, user("bad"))).status == 403
        good, bad = (f"spiffe://cluster.local/ns/shop/sa/{name}" for name in ("good", "bad"))
        assert (await one.send(0, Request(tcp=True, principal=good))).status == 200
        assert asked[-1].attributes.source.principal == good
        assert (await one.send(0, Request(tcp=True, principal=bad))).status == 403


async def test_a_deny_policy_denies_after_the_authorizer_allows():
    deny = AuthorizationPolicy("deny", "shop", Action.DENY, rules=(on("/never"),))
    async with grpc_authorizer() as (port, asked), asking([[custom("grpc"), deny]], grpc_provider(), grpc=port) as one:
        assert (await one.send(0, user("good", path="/never"))).status == 403
        assert len(asked) == 1
        assert (await one.send(0, user("good", path="/other"))).status == 200


async def test_each_of_two_authorizers_decides_only_its_own_requests():
    policies = [custom("http", on("/h/*", "/both")), custom("http-2", on("/g/*", "/both"))]
    providers = http_provider(request_headers=("x-user",)), grpc_provider("http-2")
    async with (
        http_authorizer() as (http, over_http),
        grpc_authorizer() as (grpc, over_grpc),
        asking([policies], *providers, http=http, grpc=grpc) as one,
    ):
        assert (await one.send(0, user("good", path="/h/"))).status == 200
        assert (len(over_http), len(over_grpc)) == (1, 0)
        assert (await one.send(0, user("good", path="/g/"))).status == 200
        assert (len(over_http), len(over_grpc)) == (1, 1)
        assert (await one.send(0, user("good", path="/both"))).status == 200
        assert (len(over_http), len(over_grpc)) == (2, 2)
        assert (await one.send(0, user("bad", path="/g/"))).status == 403


async def test_requests_are_denied_while_the_authorizer_is_down_unless_it_fails_open():
    """One authorizer does not respond within its timeout, another one does not exist."""
    quick = timedelta(milliseconds=100)
    providers = [
        http_provider("closed", timeout=quick, request_headers=("x-user",)),
        http_provider("open", timeout=quick, request_headers=("x-user",), fail_open=True),
        http_provider("told", timeout=quick, request_headers=("x-user",), status_on_error=503),
        grpc_provider("away", timeout=quick),
        grpc_provider("away-open", timeout=quick, fail_open=True),
    ]
    sets = [[custom(provider.name)] for provider in providers]
    async with http_authorizer() as (port, _), asking(sets, *providers, http=port) as one:
        statuses = [(await one.send(place, user("slow"))).status for place in range(len(sets))]
        assert statuses == [403, 200, 503, 403, 200]
        connections = [(await one.send(place, Request(tcp=True))).status for place in (3, 4)]
        assert connections == [403, 200]


async def test_connections_are_denied_where_the_authorizer_is_http():
    sets = [[custom("http")], [custom("http", AuthorizationRule(operations=(Operation(ports=(8080,)),)))]]
    async with http_authorizer() as (port, _), asking(sets, http_provider(), http=port) as one:
        assert (await one.send(0, Request(tcp=True))).status == 403
        assert (await one.send(1, Request(tcp=True))).status == 200
        line = next(line for line in await one.logged(2) if line["ended"])
        assert "policy[http]-rule[0]-provider[http]-not-available" in line["ended"]


async def test_an_authorizer_without_a_service_denies_the_requests_it_would_decide():
    nowhere = Authorizer(name="nowhere", host="nobody.shop.svc.cluster.local", port=80, fail_open=True)
    other_port = msgspec.structs.replace(http_provider("port"), port=8001)
    sets = [[custom("nowhere", on("/ask"))], [custom("port", on("/ask"))], [custom("unheard-of", on("/ask"))]]
    async with asking(sets, nowhere, other_port) as one:
        for place in range(3):
            assert (await one.send(place, Request(path="/ask"))).status == 403
            assert (await one.send(place, Request(path="/free"))).status == 200


async def test_a_dry_run_calls_no_authorizer_and_logs_the_rule():
    policy = custom("grpc", on("/ask"), dry_run=True)
    async with grpc_authorizer() as (port, asked), asking([[policy]], grpc_provider(), grpc=port) as one:
        assert (await one.send(0, user("bad", path="/ask"))).status == 200
        assert not asked
        (line,) = await one.logged(1)
        found = line["rbac"]["istio_dry_run_custom_shadow_effective_policy_id"]
        assert found == "ns[shop]-policy[grpc]-rule[0]"


@pytest.mark.parametrize("who", ["shop", "test"])
async def test_the_authorizer_is_called_only_for_callers_that_the_rule_matches(who):
    policy = custom("grpc", AuthorizationRule(sources=(Source(namespaces=("test",)),)))
    async with grpc_authorizer() as (port, asked), asking([[policy]], grpc_provider(), grpc=port) as one:
        answer = await one.send(0, user("bad", principal=f"spiffe://cluster.local/ns/{who}/sa/web"))
        assert (answer.status, len(asked)) == ((200, 0) if who == "shop" else (403, 1))


async def test_a_denial_is_logged_with_the_rule_and_the_authorizer():
    sets = [[custom("http", on("/ask"))]]
    async with http_authorizer() as (port, _), asking(sets, http_provider(), http=port) as one:
        assert (await one.send(0, user("bad", path="/ask"))).status == 401
        (line,) = await one.logged(1)
        assert (
            line["rbac"]["istio_ext_authz_shadow_effective_policy_id"] == "ns[shop]-policy[http]-rule[0]-provider[http]"
        )
