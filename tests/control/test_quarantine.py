"""The quarantine, with a proxy that rejects everything with `/bad` in it, as Envoy does: a whole response because of
one resource, a whole route configuration because of one host."""

import asyncio

import pytest
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from control.proxy import Client, changes, serving
from eventually import eventually
from weft.control.quarantine import reason
from weft.xds.clients import Sync
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80}}]
"""
ROUTES = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: shop}}
spec:
  hosts: [{name}]
  http:
    - match: [{{uri: {{prefix: {path}}}}}]
      route: [{{destination: {{host: {name}}}}}]
"""
POOL = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: stock, namespace: shop}
spec: {host: stock, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}
"""
NAMES = ("orders", "cart", "stock", "users", "audit")


def services():
    return "---".join(SERVICE.format(name=name) for name in NAMES)


def routes(**paths):
    return "---".join(ROUTES.format(name=name, path=path) for name, path in paths.items())


class Picky(Client):
    """A client that stores the route configuration that it accepted, by virtual host."""

    def __init__(self, channel):
        super().__init__(channel)
        self.has = {}
        self.refusals = 0

    async def run(self):
        await self.subscribe(CLUSTER)
        await self.subscribe(ENDPOINT, *(f"outbound|80||{name}.shop.svc.cluster.local" for name in NAMES))
        await self.subscribe(ROUTE, "80")
        while True:
            response = await self._call.read()
            bad = any(b"/bad" in resource.resource.value for resource in response.resources)
            self.refusals += bad
            if not bad and response.type_url == ROUTE:
                for resource in response.resources:
                    taken = RouteConfiguration.FromString(resource.resource.value)
                    self.has = {host.name.split(".")[0]: host.routes[0].match.prefix for host in taken.virtual_hosts}
            await self.answer(response, error="no such path" if bad else "")


@pytest.fixture
async def rig(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        proxy = Picky(channel)
        running = asyncio.create_task(proxy.run())
        yield plane, proxy
        running.cancel()


async def settles(plane, proxy, has, blamed=()):
    expected = {f"VirtualService shop/{name}" for name in blamed}
    await eventually(
        lambda: (proxy.has, {problem.where.object for problem in plane.problems()}),
        lambda seen: has.items() <= seen[0].items() and seen[1] == expected,
    )


async def test_one_bad_host_does_not_block_hosts_that_changed_with_it(rig):
    plane, proxy = rig
    await settles(plane, proxy, {"orders": "/"})
    plane.apply(changes(routes(orders="/a", cart="/b", stock="/bad", users="/d", audit="/e")))
    good = {"orders": "/a", "cart": "/b", "stock": "/", "users": "/d", "audit": "/e"}
    await settles(plane, proxy, good, blamed=["stock"])


async def test_several_bad_hosts_are_each_found(rig):
    plane, proxy = rig
    await settles(plane, proxy, {"orders": "/"})
    plane.apply(changes(routes(orders="/bad1", cart="/b", stock="/bad2", users="/d")))
    await settles(plane, proxy, {"orders": "/", "cart": "/b", "stock": "/", "users": "/d"}, blamed=["orders", "stock"])


async def test_a_bad_host_does_not_block_hosts_that_change_later(rig):
    plane, proxy = rig
    await settles(plane, proxy, {"orders": "/"})
    plane.apply(changes(routes(stock="/bad")))
    await settles(plane, proxy, {"stock": "/"}, blamed=["stock"])
    plane.apply(changes(routes(orders="/later")))
    await settles(plane, proxy, {"stock": "/", "orders": "/later"}, blamed=["stock"])


async def test_correcting_the_object_clears_the_problem_and_adds_its_routes(rig):
    plane, proxy = rig
    await settles(plane, proxy, {"orders": "/"})
    plane.apply(changes(routes(stock="/bad", cart="/b")))
    await settles(plane, proxy, {"cart": "/b"}, blamed=["stock"])
    plane.apply(changes(routes(stock="/good")))
    await settles(plane, proxy, {"stock": "/good", "cart": "/b"})


async def test_a_change_that_leaves_a_bad_hosts_routes_as_they_are_does_not_bring_them_back(rig):
    plane, proxy = rig
    await settles(plane, proxy, {"orders": "/"})
    plane.apply(changes(routes(stock="/bad")))
    await settles(plane, proxy, {"stock": "/"}, blamed=["stock"])
    refusals = proxy.refusals
    plane.apply(changes(POOL))
    await plane.pushed()
    plane.apply(changes(routes(orders="/later")))
    await settles(plane, proxy, {"stock": "/", "orders": "/later"}, blamed=["stock"])
    assert proxy.refusals == refusals


async def test_a_host_that_was_bad_from_the_start_is_left_out_until_it_is_corrected(tmp_path):
    documents = services() + "---" + routes(stock="/bad", cart="/b")
    async with serving(tmp_path, documents) as (plane, channel):
        proxy = Picky(channel)
        running = asyncio.create_task(proxy.run())
        await settles(plane, proxy, {"orders": "/", "cart": "/b"}, blamed=["stock"])
        assert "stock" not in proxy.has
        plane.apply(changes(routes(stock="/good")))
        await settles(plane, proxy, {"stock": "/good"})
        running.cancel()


POLICY = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: shop}
spec: {action: DENY, rules: [{}]}
"""


async def test_a_proxy_that_rejects_a_policy_does_not_lift_it_for_others(tmp_path):
    async def read(client):
        response = await client.read()
        return response, b"policy[nobody]" in response.SerializeToString()

    async with serving(tmp_path, services()) as (plane, channel):
        honest, other = Client(channel), Client(channel)
        for client in (honest, other):
            await client.subscribe(LISTENER)
            await client.answer(await client.read())
        await eventually(lambda: all(status.sync is Sync.SYNCED for status in plane.proxies()))
        plane.apply(changes(POLICY))
        guarded, has_it = await read(honest)
        assert has_it
        await other.answer(await other.read(), error="virtualInbound: I will not have it")
        await eventually(plane.problems)
        await honest.answer(guarded)
        await eventually(lambda: not plane.problems())
        late = Client(channel)
        await late.subscribe(LISTENER)
        assert (await read(late))[1]
        for client in (honest, other, late):
            client.cancel()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("The table size of maglev must be prime number", "The table size of maglev must be prime number"),
        ("Error adding/updating cluster(s) weft-trial: no", "no"),
        (
            "goo.gle/debugstr name: { a } : Proto constraint validation failed (A.B: embedded message failed validation"
            ' | caused by RouteActionValidationError.PrefixRewrite: value does not match "^[^\\n]*$")',
            'RouteActionValidationError.PrefixRewrite: value does not match "^[^\\n]*$"',
        ),
        (
            "goo.gle/debugonly name: { cut of",
            "the resource is not valid, and so large that Envoy's error message does not contain the cause",
        ),
    ],
)
def test_only_the_cause_is_kept_of_envoys_error_message(said, expected):
    assert reason(said) == expected


ONE_OF_TWO = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: good, namespace: shop}
spec: {action: DENY, rules: [{to: [{operation: {methods: [GOOD]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: mixed, namespace: shop}
spec:
  action: DENY
  rules:
  - to: [{operation: {methods: [FINE]}}]
  - to: [{operation: {methods: [BAD]}}]
"""


async def test_the_one_rule_at_fault_among_all_policies_of_a_workload_is_named(tmp_path):
    async def answer_all():
        while True:
            response = await client.read()
            bad = [each.name for each in response.resources if b"BAD" in each.resource.value]
            told.update(each.name for each in response.resources)
            await client.answer(response, error=f"{bad[0]}: no such path" if bad else "")

    told = set()
    async with serving(tmp_path, services()) as (plane, channel):
        client = Client(channel)
        await client.subscribe(LISTENER)
        running = asyncio.create_task(answer_all())
        await eventually(lambda: "virtualInbound" in told)
        plane.apply(changes(ONE_OF_TWO))
        await eventually(lambda: [each.where.line for each in plane.problems()] == [14])
        (problem,) = plane.problems()
        assert problem.where.object == "AuthorizationPolicy shop/mixed"
        (group,) = {status.group for status in plane.proxies()}
        assert plane.refused(group) == {(LISTENER, "virtualInbound"): (problem,)}
        plane.apply(changes(ONE_OF_TWO.replace("BAD", "BETTER")))
        await eventually(lambda: not plane.problems() and not plane.refused(group))
        running.cancel()
        client.cancel()
