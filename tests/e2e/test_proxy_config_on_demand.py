"""`weft proxy-config` of a pod whose proxy gets services on demand, compared with what the proxy really gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.looking import cells, parsed, weft
from e2e.objects import destination_rule, http_service, text, to, virtual_service, workload
from e2e.test_on_demand import address
from weft.model.on_demand import FEW

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

DOMAIN = "shop.svc.cluster.local"
MANY = FEW + 5


def files(control: Path) -> dict[str, str]:
    many = (http_service(f"many-{each}") | {"spec": http_service("web")["spec"]} for each in range(MANY))
    return {
        "pods.yaml": text(
            *(workload(name, control=control) for name in ("fresh", "caller")),
            workload("web", control=control, serve="http=8080", app="web", version="v1"),
        ),
        "web.yaml": text(
            http_service("web"),
            destination_rule("web", "v1"),
            virtual_service("web", {"match": [{"uri": {"prefix": "/one"}}], "route": [to("web", "v1")]}),
        ),
        "many.yaml": text(*many),
    }


def hosts(shown: str) -> set[str]:
    return {row[0] for row in cells(shown) if row[3] == "outbound"}


async def test_a_fresh_pod_is_reported_as_on_demand_with_the_next_step(mesh):
    for kind in ("routes", "clusters", "endpoints", "listeners", "all"):
        shown = await weft("proxy-config", kind, "fresh", both=True)
        assert "on demand: this proxy has no service yet, and gets the config of any other service" in shown
        assert "--host HOST" in shown and "--all" in shown and "weft describe pod fresh-0.shop" in shown
    assert "web" not in str(parsed(await weft("pc", "r", "fresh", "-o", "json")))  # the note is not part of the data


async def test_all_shows_every_service_without_sending_any(mesh):
    shown = hosts(await weft("pc", "c", "fresh", "--all"))
    assert shown == {f"web.{DOMAIN}", *(f"many-{each}.{DOMAIN}" for each in range(MANY))}
    endpoints = cells(await weft("pc", "ep", "fresh", "--all", "--port", "8080"))
    assert {row[3].rpartition("|")[2] for row in endpoints} == shown
    assert "many-7" in await weft("pc", "r", "fresh", "--all", "--name", "80")
    assert hosts(await weft("pc", "c", "fresh")) == set()


async def test_host_shows_exactly_what_the_proxy_gets_at_the_first_call(mesh):
    kinds = ("listeners", "routes", "clusters")
    foreseen = {kind: parsed(await weft("pc", kind, "caller", "--host", "web", "-o", "json")) for kind in kinds}
    answer = await mesh.get("caller", f"http://{address(mesh, 'web')}/one")
    assert answer["status"] == 200
    for kind in kinds:
        sent = {each.get("name"): each for each in parsed(await weft("pc", kind, "caller", "-o", "json"))}
        # The called address is a cluster of its own, which releases the held call.
        seen = {each["name"]: each for each in foreseen[kind] if not each["name"].startswith("hold|")}
        assert any("web" in str(each) for each in seen.values())
        assert seen == {name: each for name, each in sent.items() if name in seen}
        assert {name for name, each in sent.items() if "web." in str(each)} <= {*seen}
    shown = await weft("pc", "c", "caller", both=True)
    assert f"on demand: this proxy has 1 service (web.{DOMAIN}), and gets" in shown


async def test_the_objects_behind_a_first_call_are_named(mesh):
    shown = await weft("pc", "r", "fresh", "--host", f"web.{DOMAIN}", "--why", "-o", "yaml")
    assert "VirtualService shop/web" in str(yaml.safe_load(shown))


async def test_a_host_that_the_pod_cannot_call_is_an_error_with_a_suggestion(mesh):
    assert "did you mean `web`?" in await weft("pc", "c", "fresh", "--host", "wbe", code=1)
    assert "--all includes every --host" in await weft("pc", "c", "fresh", "--host", "web", "--all", code=2)
