"""On-demand by default: a proxy gets the whole config while it is small, and on demand once it is large. Open
connections stay open while the size goes up, down and up again."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.mesh import running_mesh
from e2e.objects import http_service, service, text, workload
from e2e.test_on_demand import address, group, held, names
from eventually import eventually
from weft.inspect.describe.pods_and_services import describe_pod
from weft.inspect.describe.text import pod_lines
from weft.inspect.live import live_stage
from weft.model.on_demand import FEW
from weft.xds.types import CLUSTER, LISTENER

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = FEW - 3
DRAINING = r"^listener_manager\.(listener_removed|total_listeners_draining|total_filter_chains_draining)$"
number = itertools.count()


def of_web(*found: str) -> str:
    """HTTP services with the pods of `web`."""
    return text(*(http_service(name) | {"spec": http_service("web")["spec"]} for name in found))


def files(control: Path) -> dict[str, str]:
    return {
        "client.yaml": text(workload("client", control=control)),
        "web.yaml": text(
            workload("web", control=control, serve="http=8080 echo=9000"),
            service("web", {"name": "http", "port": 80, "targetPort": 8080}, {"name": "tcp", "port": 9000}),
        ),
        "echo.yaml": text(workload("echo", control=control, serve="echo=9000")),
        "many.yaml": of_web(*(f"many-{each}" for each in range(MANY))),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_mesh():
    async with running_mesh(files) as mesh:
        yield mesh


def hosts(mesh, of):
    return {name.rpartition("|")[2].partition(".")[0] for name in names(mesh, of, CLUSTER) if "outbound|" in name}


def size(mesh, of):
    sent = live_stage(mesh.control).resources(group(mesh, of))
    return sum(len(body) for bodies in sent.values() for body in bodies.values())


def judged(mesh):
    return mesh.control.mesh.on_demand(mesh.control.mesh.scope(group(mesh, "client")))


async def carries(mesh, of, *connections):
    """Whether open connections still carry data, without a `connection: close`."""
    for name in connections:
        word = f"word-{next(number)}."
        if name.startswith("http"):
            asked = f"GET /{word} HTTP/1.1\r\nhost: web\r\n\r\n"
            answer = await mesh.tell(of, "say", name=name, send=asked, until=word)
            assert "HTTP/1.1 200" in answer and "connection: close" not in answer.lower()
        else:
            assert (await mesh.tell(of, "say", name=name, send=word, until=word)).endswith(word)
    assert set((await mesh.stats(mesh.pod(of).name, DRAINING)).values()) == {0}
    assert await mesh.stat("web", r"^listener_manager\.total_filter_chains_draining$") == 0


async def test_connections_stay_open_while_on_demand_is_turned_on_and_off(mesh):
    assert not judged(mesh).on and len(hosts(mesh, "client")) == MANY + 1
    assert "virtualOutboundAgain" not in names(mesh, "client", LISTENER)
    web = address(mesh, "web")
    await mesh.tell("client", "keep", name="http", host=web, port=80)
    await mesh.tell("client", "keep", name="bytes", host=web, port=9000)
    await carries(mesh, "client", "http", "bytes")
    listeners = names(mesh, "client", LISTENER)

    late = of_web("late") + "---\n" + text(service("echo", {"name": "tcp", "port": 9000}))
    extra = of_web("extra-0", "extra-1")
    await mesh.edit({"late.yaml": late, "extra.yaml": extra})
    assert judged(mesh).on and judged(mesh).services == FEW + 2
    # Nothing was removed, and the new services were not sent.
    assert listeners <= names(mesh, "client", LISTENER)
    assert len(hosts(mesh, "client")) == MANY + 1 and "late" not in hosts(mesh, "client")
    await carries(mesh, "client", "http", "bytes")
    answer = await mesh.get("client", f"http://{address(mesh, 'late')}/", method="POST", body="first")
    assert (answer["status"], answer["body"]["body"]) == (200, "first")
    assert f"{address(mesh, 'late')}" in str(await held(mesh, mesh.pod("client").name))
    # A held connection has two ends in this proxy.
    await mesh.tell("client", "keep", name="held", host=address(mesh, "echo"), port=9000)
    await carries(mesh, "client", "http", "bytes", "held")

    # A new proxy starts without services and gets those that it calls.
    await mesh.edit({"fresh.yaml": text(workload("fresh", control=mesh.sockets))})
    await eventually(lambda: any("~fresh-0." in each.node_id for each in mesh.control.proxies()))
    await mesh.ready()
    assert hosts(mesh, "fresh") == set()
    await mesh.tell("fresh", "keep", name="http", host=web, port=80)
    await mesh.tell("fresh", "keep", name="bytes", host=web, port=9000)
    await carries(mesh, "fresh", "http", "bytes")
    assert hosts(mesh, "fresh") == {"web"} and size(mesh, "fresh") * 10 < size(mesh, "client")
    (said,) = [line for line in lines(mesh, "fresh") if line.startswith("On demand")]
    assert said == (
        f"On demand: the proxy has 1 of {FEW + 2} services, and gets each of the others at its first call "
        f"({FEW + 2} services could be called from here, more than {FEW}; weft.dev/on-demand: auto)"
    )

    listeners = {of: names(mesh, of, LISTENER) for of in ("client", "fresh")}
    for on in (False, True, False, True):
        await mesh.edit({"extra.yaml": extra if on else None})
        assert judged(mesh).on is on
        for of in ("client", "fresh"):
            assert listeners[of] <= names(mesh, of, LISTENER)
            assert {"web", "late", "many-1"} <= hosts(mesh, of) and "extra-0" not in hosts(mesh, of)
        await carries(mesh, "client", "http", "bytes", "held")
        await carries(mesh, "fresh", "http", "bytes")
        for of in ("client", "fresh"):
            answers = [await mesh.get(of, f"http://{address(mesh, name)}/") for name in ("late", "many-1", "web")]
            assert [answer["status"] for answer in answers] == [200] * 3


def lines(mesh, of):
    return list(pod_lines(describe_pod(mesh.control.mesh, live_stage(mesh.control), (), of)))
