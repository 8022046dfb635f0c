"""What Envoy refuses is traced to the smallest part of an object, by trials of no consequence, and every command that
tells of it names the line.

Nothing that weft takes is known to be refused by Envoy, so what is bad here gets past weft's own checks: it is changed
behind them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import msgspec
import pytest

from e2e import looking
from e2e.mesh import eventually
from e2e.objects import NAMESPACE, destination_rule, http_service, istio, text, to, virtual_service, workload
from e2e.test_config_changes import with_text
from weft.model.names import ObjectKey

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

HASHED = {"loadBalancer": {"consistentHash": {"httpHeaderName": "x-user", "maglev": {"tableSize": 11}}}}


def policy(name, *headers):
    rules = [{"when": [{"key": f"request.headers[{header}]", "values": ["yes"]}]} for header in headers]
    spec = {"selector": {"matchLabels": {"app": "app"}}, "action": "DENY", "rules": rules}
    made = istio("AuthorizationPolicy", name, spec)
    return {**made, "apiVersion": "security.istio.io/v1"}


def files(control):
    leaf = [
        {"name": "fine", "match": [{"uri": {"prefix": "/fine"}}], "route": [to("app")]},
        {
            "name": "moved",
            "match": [{"uri": {"prefix": "/moved"}}],
            "rewrite": {"uri": "/elsewhere"},
            "route": [to("app")],
        },
    ]
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(workload("app", control=control, serve="http=8080"), http_service("app")),
        "root.yaml": text(virtual_service("app", {"name": "leaf", "delegate": {"name": "leaf"}})),
        "leaf.yaml": text(istio("VirtualService", "leaf", {"http": leaf})),
        "one.yaml": text(policy("one", "x-a", "x-b")),
        "two.yaml": text(policy("two", "x-c", "x-d", "x-e")),
        "hash.yaml": text(destination_rule("app", **HASHED)),
    }


def line_of(mesh, file, words):
    lines = (mesh.directory / file).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if words in line)


async def weft(mesh, *arguments):
    """All that the command says, with files as they are called in the mesh's directory."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft.cli", *arguments, "--mesh", mesh.engine.name),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "400"},
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    return said.decode().replace(f"{mesh.directory}/", "")


def refusals(mesh):
    return [each.replace(f"{mesh.directory}/", "") for each in mesh.problems() if "Envoy refuses" in each]


async def blamed(mesh, place):
    """Alone: of all that made the resource nobody else."""

    def alone():
        found = refusals(mesh)
        return len(found) == 1 and found[0].startswith(place) and found

    await eventually(alone)


async def mended(mesh, key, good):
    mesh.control.put(key, good)
    await eventually(lambda: not refusals(mesh))
    await mesh.synced()
    for name in ("client", "app"):
        await eventually(lambda name=name: _has_no_trial(mesh, name))


async def _has_no_trial(mesh, name):
    """A listener that is gone is shown until it would have drained."""
    return "weft-trial" not in json.dumps(await looking.envoy(mesh, name, "/config_dump"))


async def test_a_refused_route_is_found_in_the_delegate_that_it_is_written_in_and_all_commands_say_so(mesh):
    key = ObjectKey("VirtualService", NAMESPACE, "leaf")
    good = mesh.control.mesh.get(key)
    mesh.control.put(key, with_text(good, "/elsewhere", "/else\nwhere"))
    line = line_of(mesh, "leaf.yaml", "name: moved")
    place = f"leaf.yaml:{line}: VirtualService shop/leaf"
    await blamed(mesh, place)
    assert f"leaf.yaml:{line}" in await weft(mesh, "status")
    told = await weft(mesh, "proxy-status")
    assert "client-0.shop refused RDS app.shop.svc.cluster.local: " in told and place in told
    assert f"leaf.yaml:{line}" in await weft(mesh, "analyze")
    why = await weft(mesh, "why", "client", "route", "80")
    assert f"refused: {place}: Envoy refuses RouteConfiguration 80: " in why
    assert "last-accepted" in why
    assert (await mesh.get("client", "http://app/moved"))["status"] == 200  # what was good stays
    await mended(mesh, key, good)
    assert "refused" not in await weft(mesh, "why", "client", "route", "80")


async def test_a_refused_policy_is_found_among_all_that_guard_the_workload(mesh):
    key = ObjectKey("AuthorizationPolicy", NAMESPACE, "two")
    good = mesh.control.mesh.get(key)
    mesh.control.put(key, with_text(good, "x-d", "x\nd"))
    place = f"two.yaml:{line_of(mesh, 'two.yaml', 'x-d') - 1}: AuthorizationPolicy shop/two"
    await blamed(mesh, place)
    assert f"refused: {place}" in await weft(mesh, "why", "app", "listener", "virtualInbound")
    assert place in await weft(mesh, "proxy-status")
    # While it is looked for, and after, the last good policies hold.
    assert (await mesh.get("client", "http://app/fine", headers={"x-d": "yes"}))["status"] == 403
    await mended(mesh, key, good)


async def test_a_refused_cluster_is_its_destination_rules_and_not_the_services(mesh):
    key = ObjectKey("DestinationRule", NAMESPACE, "app")
    good = mesh.control.mesh.get(key)
    (rule,) = good
    hashing = msgspec.structs.replace(rule.policy.load_balancer.consistent_hash, table_size=10)  # no prime
    balancer = msgspec.structs.replace(rule.policy.load_balancer, consistent_hash=hashing)
    changed = msgspec.structs.replace(rule.policy, load_balancer=balancer)
    mesh.control.put(key, (msgspec.structs.replace(rule, policy=changed),))
    await blamed(mesh, "hash.yaml:1: DestinationRule shop/app")
    await mended(mesh, key, good)
