"""A resource that Envoy rejects is traced to the smallest part of an object, by trials without effect on traffic,
and every command that reports it names the line.

No input that weft accepts is known to be rejected by Envoy, so these tests turn off one check of the readers: the
files are read as usual, and their content reaches Envoy.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from e2e import looking
from e2e.objects import istio, service, text, to, virtual_service, workload
from eventually import eventually
from weft.api import authorization_policy, traffic_policy
from weft.api.reader import Fields

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

SMALL, TOO_LARGE = 64, 1 << 24


def policy(name, *headers):
    rules = [{"when": [{"key": f"request.headers[{header}]", "values": ["yes"]}]} for header in headers]
    spec = {"selector": {"matchLabels": {"app": "app"}}, "action": "DENY", "rules": rules}
    made = istio("AuthorizationPolicy", name, spec)
    return {**made, "apiVersion": "security.istio.io/v1"}


def leaf(rewrite):
    routes = [
        {"name": "fine", "match": [{"uri": {"prefix": "/fine"}}], "route": [to("app")]},
        {
            "name": "moved",
            "match": [{"uri": {"prefix": "/moved"}}],
            "rewrite": {"uri": rewrite},
            "route": [to("app")],
        },
    ]
    return text(istio("VirtualService", "leaf", {"http": routes}))


def hashing(header, size):
    return {"loadBalancer": {"consistentHash": {"httpHeaderName": header, "minimumRingSize": size}}}


def level(size, size_at_port):
    entry = {"port": {"number": 81}, **hashing("x-port", size_at_port)}
    return {"trafficPolicy": {**hashing("x-all", size), "portLevelSettings": [entry]}}


def rule(whole=SMALL, port=SMALL, subset=SMALL, port_of_subset=SMALL):
    """Ring sizes: for the host, for one port, for one subset, for one port of that subset."""
    subsets = [{"name": "all", "labels": {"app": "app"}, **level(subset, port_of_subset)}]
    return text(istio("DestinationRule", "app", {"host": "app", **level(whole, port), "subsets": subsets}))


def files(control):
    ports = [{"name": f"http-{number}", "port": number, "targetPort": 8080} for number in (80, 81)]
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(workload("app", control=control, serve="http=8080"), service("app", *ports)),
        "root.yaml": text(virtual_service("app", {"name": "leaf", "delegate": {"name": "leaf"}})),
        "leaf.yaml": leaf("/elsewhere"),
        "one.yaml": text(policy("one", "x-a", "x-b")),
        "two.yaml": text(policy("two", "x-c", "x-d", "x-e")),
        "hash.yaml": rule(),
    }


def line_of(mesh, file, words):
    lines = (mesh.directory / file).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if words in line)


async def weft(mesh, *arguments):
    """Run a command; returns its output, with files named relative to the mesh's directory."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft.cli", *arguments, "--mesh", mesh.engine.name),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "400"},
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    return said.decode().replace(f"{mesh.directory}/", "")


def refusals(mesh):
    return [each.replace(f"{mesh.directory}/", "") for each in mesh.problems() if "Envoy rejects" in each]


async def blamed(mesh, place):
    """Wait until this place, and no other object of the resource, is reported."""

    def alone():
        found = refusals(mesh)
        return found and all(each.startswith(place) for each in found)

    await eventually(alone)


async def mended(mesh, file, good):
    mesh.write(file, good)
    await eventually(lambda: not refusals(mesh))
    await mesh.synced()
    for name in ("client", "app"):
        await eventually(lambda name=name: _has_no_trial(mesh, name))


async def _has_no_trial(mesh, name):
    """A removed listener is shown until its drain time is over."""
    return "weft-trial" not in json.dumps(await looking.envoy(mesh, name, "/config_dump"))


async def test_a_rejected_route_is_traced_to_its_delegate_and_all_commands_show_it(mesh, monkeypatch):
    monkeypatch.setattr(Fields, "request_text", Fields.text)
    mesh.write("leaf.yaml", leaf("/else\nwhere"))
    line = line_of(mesh, "leaf.yaml", "name: moved")
    place = f"leaf.yaml:{line}: VirtualService shop/leaf"
    await blamed(mesh, place)
    assert f"leaf.yaml:{line}" in await weft(mesh, "status")
    told = await weft(mesh, "proxy-status")
    assert "client-0.shop rejected RDS app.shop.svc.cluster.local: " in told and place in told
    assert f"leaf.yaml:{line}" in await weft(mesh, "analyze")
    why = await weft(mesh, "why", "client", "route", "80")
    assert f"rejected: {place}: Envoy rejects RouteConfiguration 80: " in why
    assert "last-accepted" in why
    assert (await mesh.get("client", "http://app/moved"))["status"] == 200  # the last good state stays in force
    await mended(mesh, "leaf.yaml", leaf("/elsewhere"))
    assert "rejected" not in await weft(mesh, "why", "client", "route", "80")


async def test_a_rejected_policy_is_found_among_all_policies_of_the_workload(mesh, monkeypatch):
    monkeypatch.setattr(authorization_policy, "is_header", bool)
    mesh.write("two.yaml", text(policy("two", "x-c", "bad\nd", "x-e")))
    place = f"two.yaml:{line_of(mesh, 'two.yaml', 'headers[bad') - 1}: AuthorizationPolicy shop/two"
    await blamed(mesh, place)
    assert f"rejected: {place}" in await weft(mesh, "why", "app", "listener", "virtualInbound")
    assert place in await weft(mesh, "proxy-status")
    # The last good policies apply during the search and after it.
    assert (await mesh.get("client", "http://app/fine", headers={"x-d": "yes"}))["status"] == 403
    await mended(mesh, "two.yaml", text(policy("two", "x-c", "x-d", "x-e")))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"whole": TOO_LARGE}, "  trafficPolicy:"),
        ({"port": TOO_LARGE}, "    - port:"),
        ({"subset": TOO_LARGE}, "    trafficPolicy:"),
        ({"port_of_subset": TOO_LARGE}, "      - port:"),
        ({"whole": TOO_LARGE, "subset": SMALL + 1}, "  trafficPolicy:"),  # a good change beside the bad one
    ],
)
async def test_a_rejected_cluster_is_traced_to_the_line_of_its_destination_rule(mesh, monkeypatch, bad, words):
    monkeypatch.setattr(traffic_policy, "LARGEST_RING", TOO_LARGE)
    mesh.write("hash.yaml", rule(**bad))
    await blamed(mesh, f"hash.yaml:{rule().splitlines().index(words) + 1}: DestinationRule shop/app")
    await mended(mesh, "hash.yaml", rule())
