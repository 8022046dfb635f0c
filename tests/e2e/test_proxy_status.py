"""The sync status of proxies: a stopped proxy, a proxy that rejects a resource, and what an Envoy really has."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal

import pytest

from e2e.mesh import proxy_process
from e2e.objects import NAMESPACE, destination_rule, http_service, text, to, virtual_service, workload
from e2e.test_config_changes import with_text
from eventually import eventually
from weft.model.names import ObjectKey

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTE = virtual_service(
    "app", {"match": [{"uri": {"regex": "/keyword.*"}}], "route": [to("app", "v1")]}, {"route": [to("app", "v1")]}
)


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(
            workload("app", control=control, serve="http=8080"), http_service("app"), destination_rule("app", "v1")
        ),
        "route.yaml": text(ROUTE),
    }


async def table(mesh):
    _, said, _ = await mesh.weft("proxy-status")
    header, *lines = said.splitlines()
    names = re.split(r" {2,}", header)
    return {row[0]: dict(zip(names, row, strict=True)) for row in (re.split(r" {2,}", line) for line in lines)}


@contextlib.contextmanager
def stopped(mesh, workload):
    """Stops its Envoy with SIGSTOP."""
    pid, _ = proxy_process(mesh.pod(workload))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_the_table_reads_as_istioctls(mesh):
    code, said, words = await mesh.weft("proxy-status")
    header, first, second = said.splitlines()
    assert header.split() == ["NAME", "CLUSTER", "CDS", "LDS", "EDS", "RDS", "ECDS", "ISTIOD", "VERSION"]
    assert (code, words) == (0, "")
    assert [line.split()[:1] for line in (first, second)] == [["app-0.shop"], ["client-0.shop"]]
    for line in (first, second):
        assert re.split(r" {2,}", line)[1:8] == ["Kubernetes", *["SYNCED"] * 4, "IGNORED", mesh.engine.name]


async def test_a_stopped_proxy_is_stale_since_the_first_push_that_it_does_not_acknowledge(mesh):
    before = mesh.control.pushes
    with stopped(mesh, "client"):
        mesh.write("test.yaml", text(http_service("new")))
        await eventually(lambda: mesh.control.pushes > before)
        row = await eventually(lambda: _stale(mesh, "client-0.shop"))
        seconds, push = map(int, re.fullmatch(r"STALE \((\d+)s, push (\d+)\)", row["CDS"]).groups())
        assert before < push <= mesh.control.pushes and seconds < 60
        # It is stale since the first push, however many follow.
        mesh.write("test.yaml", text(http_service("new"), http_service("newer")))
        await eventually(lambda: mesh.control.pushes > push)
        await asyncio.sleep(1.1)  # so that the age grows
        later = (await table(mesh))["client-0.shop"]["CDS"]
        assert f"push {push})" in later and int(re.search(r"\d+", later)[0]) > seconds
        assert (await eventually(lambda: _synced(mesh, "app-0.shop")))["CDS"] == "SYNCED"
        code, said, _ = await mesh.weft("proxy-status", "-o", "json")
        stale = next(each for each in json.loads(said) if each["proxy"] == "client-0.shop")
        assert code == 0 and stale["cluster_sent"] != stale["cluster_acked"]
    assert (await eventually(lambda: _synced(mesh, "client-0.shop")))["CDS"] == "SYNCED"


async def test_what_envoy_has_is_what_was_sent(mesh):
    for pod in ("client-0.shop", "app-0", "app"):
        code, said, words = await mesh.weft("proxy-status", pod)
        assert (code, said) == (0, "Clusters Match\nListeners Match\nRoutes Match\nEndpoints Match\n"), words


async def test_resources_that_envoy_does_not_have_yet_are_listed(mesh):
    """Compares the dump of a stopped Envoy with the config that the control plane has for it."""
    pod = mesh.engine.find_pod("client")
    has = await pod.proxy.admin.read("/config_dump", {"include_eds": "true"})
    pid, _ = proxy_process(mesh.pod("client"))
    os.kill(pid, signal.SIGSTOP)
    try:
        mesh.write("test.yaml", text(http_service("new")))
        await eventually(lambda: _stale(mesh, "client-0.shop"))
        sent = (await mesh.engine.debug.answer("config_dump", {"proxyID": "client-0.shop", "include_eds": "true"})).body
    finally:
        os.kill(pid, signal.SIGCONT)
    from weft.envoy.difference import differences

    found = {(each.kind, each.name): each.what for each in differences(json.loads(sent), json.loads(has))}
    new = "outbound|80||new.shop.svc.cluster.local"
    assert found[("Clusters", new)] == found[("Endpoints", new)] == "missing"
    assert found[("Routes", "80")] == "other"
    await mesh.synced()
    assert (await mesh.weft("proxy-status", "client-0.shop"))[0] == 0


async def test_a_rejected_resource_is_an_error_until_it_is_fixed(mesh):
    key = ObjectKey("VirtualService", NAMESPACE, "app")
    good = mesh.control.mesh.get(key)
    # RE2 has no lookahead, so this passes every check that does not use RE2 itself.
    mesh.control.put(key, with_text(good, "/keyword.*", "/(?=keyword).*"))

    async def client_rejects():
        code, said, words = await mesh.weft("proxy-status")
        assert code == 0
        return (said, words) if "client-0.shop rejected RDS app.shop.svc.cluster.local: " in words else None

    said, words = await eventually(client_rejects)  # each proxy in its own time
    assert "ERROR" in said and "shown by: weft status" in words
    assert [each for each in mesh.problems() if "Envoy rejects" in each]
    mesh.control.put(key, good)
    await eventually(lambda: not [each for each in mesh.problems() if "Envoy rejects" in each])
    await mesh.synced()
    code, said, words = await mesh.weft("proxy-status")
    assert code == 0 and "ERROR" not in said and words == ""


async def test_json_and_yaml_hold_the_same(mesh):
    import yaml

    _, first, _ = await mesh.weft("proxy-status", "-o", "json")
    _, second, _ = await mesh.weft("proxy-status", "-o", "yaml")
    assert [each["proxy"] for each in json.loads(first)] == ["app-0.shop", "client-0.shop"]
    assert yaml.safe_load(second) == json.loads(first)
    assert json.loads((await mesh.weft("proxy-status", "-o", "json", "-n", "other"))[1]) == []


async def test_an_unknown_pod_is_an_error(mesh):
    code, said, words = await mesh.weft("proxy-status", "nobody")
    assert (code, said) == (1, "") and "no workload or pod `nobody`" in words


async def _stale(mesh, name):
    row = (await table(mesh)).get(name)
    return row if row and row["CDS"].startswith("STALE") else None


async def _synced(mesh, name):
    row = (await table(mesh)).get(name)
    return row if row and all(row[kind] == "SYNCED" for kind in ("CDS", "LDS", "EDS", "RDS")) else None
