"""`weft diff` on a mesh with traffic while it changes: it evaluates the recorded requests, and compares past states."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from e2e import looking
from e2e.looking import parsed, weft
from e2e.objects import istio, text, to, virtual_service
from eventually import eventually
from weft.local.client import fetch_debug

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

LOGGED = {
    "apiVersion": "telemetry.istio.io/v1",
    "kind": "Telemetry",
    "metadata": {"name": "logged", "namespace": "istio-system"},
    "spec": {"accessLogging": [{"providers": [{"name": "envoy"}]}]},
}
NO_POSTS = {
    "apiVersion": "security.istio.io/v1",
    "kind": "AuthorizationPolicy",
    "metadata": {"name": "no-posts", "namespace": "shop"},
    "spec": {"action": "DENY", "rules": [{"to": [{"operation": {"methods": ["POST"], "paths": ["/orders/*"]}}]}]},
}


def files(control: Path) -> dict[str, str]:
    return {**looking.files(control), "logged.yaml": text(LOGGED)}


async def seen(mesh, change: Path, wanted: int) -> dict:
    """The output of diff once this many requests are in the access log, which Envoy flushes with a delay."""

    async def judged():
        said = parsed(await weft("diff", "-f", str(change), "-o", "json", code=None))
        return said if said["recent"]["judged"] >= wanted else None

    return await eventually(judged)


async def test_a_change_is_judged_by_what_was_really_called(mesh, tmp_path):
    change = tmp_path / "no-posts.yaml"
    change.write_text(text(NO_POSTS))
    for number in range(3):
        assert (await mesh.get("client", f"http://app/orders/{number}?token=s3cr3t", method="POST"))["status"] == 200
    assert (await mesh.get("client", "http://app/elsewhere", method="POST"))["status"] == 200
    said = await seen(mesh, change, 4)
    (turned,) = said["recent"]["requests"]
    assert turned["request"] == "client.shop POST http://app/orders/* (200)"
    assert turned["count"] == 3
    assert turned["before"][0].startswith("delivered: outbound|80|v1|app.shop.svc.cluster.local")
    assert turned["after"][0].startswith("denied 403")
    assert turned["because"] == f"AuthorizationPolicy shop/no-posts ({change}:1)"
    assert turned["before"][0].endswith(" as POST app/orders/*")
    assert "s3cr3t" not in str(said)
    shown = await weft("diff", "-f", str(change), code=1, both=True)
    assert "3× client.shop POST http://app/orders/* (200)\n  - delivered" in shown
    assert re.search(r"\d+ recent requests compared, 3 with another result", shown)
    # The prediction is true once the change is applied.
    await mesh.edit({"test.yaml": text(NO_POSTS)})

    async def denied():
        return (await mesh.get("client", "http://app/orders/7", method="POST"))["status"] == 403

    assert await eventually(denied)


async def test_two_moments_are_compared_by_objects_proxies_and_requests(mesh):
    later = virtual_service("app", {"route": [to("app", "v2")]})
    whole = (mesh.directory / "app.yaml").read_text()
    await mesh.edit({"test.yaml": text(istio("Sidecar", "narrow", {"egress": [{"hosts": ["./*"]}]}))})
    before = (await weft("history")).splitlines()[-1].split()
    await asyncio.sleep(1)  # moments are identified by their second
    await mesh.edit({"app.yaml": "---\n".join([whole.split("---\n")[0], *_without_routes(whole), text(later)])})
    shown = await weft("diff", "@-1", code=1, both=True)
    assert re.search(r"^changed VirtualService shop/app \(\S*app.yaml:\d+\)$", shown, re.MULTILINE), shown
    assert re.search(r"^sidecar:shop/client \(client-0.shop, client-1.shop\)\n  changed route 80$", shown, re.MULTILINE)
    call = "client-0.shop GET http://app.shop.svc.cluster.local:80/"
    assert f"{call}\n  - delivered: outbound|80|v1|" in shown
    assert re.search(r"\n  \+ delivered: outbound\|80\|v2\|.*\n  by VirtualService shop/app \(\S*app.yaml:\d+\)", shown)
    moment, digest = before[0], before[3]
    for word in (moment, f"@{digest}", f"@{before[2]}"):
        assert f"from {moment} to @" in await weft("diff", word, code=1, both=True), word
    # After the change back, the text and the digest are the same as before.
    await mesh.edit({"app.yaml": whole})
    again = (await weft("history")).splitlines()[-1].split()
    assert again[3] == digest and again[0] != moment
    assert "0 objects" in await weft("diff", moment, again[0], both=True)
    assert f"from {moment} to @" in await weft("diff", moment, "@-1", code=1, both=True)
    assert "is not recorded" in await weft("diff", "@-99", code=2)


def _without_routes(whole: str) -> list[str]:
    return [each for each in whole.split("---\n")[1:] if "kind: VirtualService" not in each]


async def test_configz_returns_the_objects_in_force_as_they_were_written(mesh):
    listed = parsed(await asyncio.to_thread(fetch_debug, mesh.engine.name, "configz"))
    objects = {(each["kind"], each["metadata"]["name"]): each for each in listed}
    route = objects["VirtualService", "app"]
    assert route["apiVersion"].startswith("networking.istio.io/")
    assert route["spec"]["http"][-1]["route"][0]["destination"]["subset"] == "v1"
    assert "env" not in objects["Workload", "client"]["spec"]
