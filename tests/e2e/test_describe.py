"""The output of `weft describe` for pods and services, compared with the outcome of requests and with Envoy's
config."""

from __future__ import annotations

import json
import re

import pytest

from e2e import looking
from e2e.looking import envoy, parsed, weft
from e2e.objects import destination_rule, text, to, virtual_service, workload
from eventually import eventually

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]


def peer(name, mode, **spec):
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"mtls": {"mode": mode}, **spec},
    }


def files(control):
    return {
        **looking.files(control),
        "bare.yaml": text(workload("bare", control=control, annotations={"sidecar.istio.io/inject": "false"})),
        "door.yaml": text(peer("door", "STRICT", selector={"matchLabels": {"version": "v2"}})),
    }


async def test_describe_pod_shows_routes_and_policies_with_their_lines(mesh):
    told = await weft("describe", "pod", "app-v2-0.shop")
    assert "   Identity: spiffe://cluster.local/ns/shop/sa/default\n" in told
    assert re.search(r"Proxy: yes, .*: Workload shop/app-v2 \(\S*app.yaml:\d+\)\n", told)
    assert "Subsets that this pod is in: v2 (version=v2)\n" in told
    assert "Subsets that this pod is not in: v1 (version=v1)\n" in told
    assert re.search(r"http route 1 \(line \d+\): path starts with /old .*; reaches this pod\n", told)
    assert re.search(r"http route 2 \(line \d+\): always: .* subset v1; does not reach it\n", told)
    assert re.search(r"Port 8080: STRICT, .*PeerAuthentication shop/door \(\S*door.yaml:1\)\n", told)
    assert re.search(r"AuthorizationPolicy shop/guard \(\S*app.yaml:\d+\): ALLOW, 1 rule\n", told)


async def test_the_routes_that_describe_shows_reach_the_pod(mesh):
    for version in ("v1", "v2"):
        (service,) = parsed(await weft("describe", "pod", f"app-{version}-0", "-o", "json"))["services"]
        first, second = service["routings"][0]["routes"]
        for route, path in ((first, "/old/x"), (second, "/")):
            really = await mesh.get("client", f"http://app{path}")
            assert really["body"]["pod"].startswith(f"app-{version}-") is route["reaches"], (version, path)


async def test_the_mtls_mode_that_describe_shows_is_the_one_on_the_wire(mesh):
    for version, plaintext in (("v1", True), ("v2", False)):
        mode = parsed(await weft("describe", "pod", f"app-{version}-0", "-o", "json"))["modes"][0]
        assert mode["mode"] == ("PERMISSIVE" if plaintext else "STRICT")
        address = mesh.pod(f"app-{version}").addresses[0]
        really = await mesh.get("bare", f"http://{address}:8080/")
        assert (really.get("status") == 200) is plaintext, really


async def test_describe_pod_shows_why_a_pod_has_no_proxy(mesh):
    told = await weft("describe", "pod", "bare")
    why = r"Proxy: none, its annotation sidecar.istio.io/inject is false: Workload shop/bare \(\S*bare.yaml:1\)\n"
    assert re.search(why, told)


async def test_describe_service_shows_pods_and_their_subsets(mesh):
    told = await weft("x", "describe", "svc", "app.shop")
    assert "   Port: http 80/HTTP targets pod port 8080\n" in told
    assert "   app-v1-0.shop: ready, with a proxy, subset v1\n" in told
    assert "   app-v2-0.shop: ready, with a proxy, subset v2\n" in told


async def test_a_missing_subset_is_reported_with_its_line(mesh):
    mesh.write("test.yaml", text(virtual_service("ledger", {"route": [to("ledger", "v9")]})))

    async def told():
        return re.search(r"test.yaml:\d+: VirtualService shop/ledger.*v9", await weft("describe", "svc", "ledger"))

    assert await eventually(told)


async def test_callers_and_servers_that_agree_get_through_and_others_do_not(mesh):
    said = await weft("authn", "tls-check", "app.shop:80", "--from", "client-0.shop")
    head, *rows = [re.split(r" {2,}", line) for line in said.splitlines()]
    assert head == ["HOST:PORT", "STATUS", "SERVER", "CLIENT", "AUTHN POLICY", "DESTINATION RULE"]
    place = "app.shop.svc.cluster.local:80"
    assert rows == [
        [place, "OK", "PERMISSIVE", "auto (mTLS)", "-", "app/shop"],
        [place, "OK", "STRICT", "auto (mTLS)", "door/shop", "app/shop"],
    ]
    assert (await mesh.get("client", "http://app/old"))["status"] == 200
    before = mesh.directory.joinpath("app.yaml").read_text()
    rule = text(destination_rule("app", "v1", "v2"))
    broken = text(destination_rule("app", "v1", "v2", tls={"mode": "DISABLE"}))
    assert rule in before
    await mesh.edit({"app.yaml": before.replace(rule, broken)})
    try:
        words = await weft("authn", "tls-check", "app.shop:80", code=1)
        said = r"conflict: .* at app-v2-0.shop; by DestinationRule shop/app \(\S*app.yaml:\d+\)"
        assert re.search(rf"{said} and PeerAuthentication shop/door \(\S*door.yaml:1\)\n", words), words
        assert (await mesh.get("client", "http://app/old"))["status"] == 503
        assert (await mesh.get("client", "http://app/"))["status"] == 200
    finally:
        await mesh.edit({"app.yaml": before})


async def test_the_policies_in_force_are_those_that_envoy_has(mesh):
    said = await weft("x", "authz", "check", "app-v1-0.shop")
    assert said.splitlines()[0].split() == ["ACTION", "AuthorizationPolicy", "RULES"]
    assert "ALLOW    guard.shop" in said
    really = json.dumps(await envoy(mesh, "app-v1", "/config_dump"))
    assert "ns[shop]-policy[guard]-rule[0]" in really
    assert "guard" not in await weft("x", "authz", "check", "ledger-0.shop")
    await mesh.edit({"test.yaml": text(deny("nobody"))})
    assert re.search(r"^DENY +nobody.shop +1$", await weft("x", "authz", "check", "app-v1"), re.MULTILINE)
    assert (await mesh.get("client", "http://app/"))["status"] == 403
    assert re.search(r"AuthorizationPolicy shop/nobody .*: DENY, 1 rule\n", await weft("describe", "pod", "app-v1"))


def deny(name):
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"action": "DENY", "selector": {"matchLabels": {"version": "v1"}}, "rules": [{}]},
    }
