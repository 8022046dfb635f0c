"""Real Envoys behind an agent, a real stream between it and a control plane, and each of them killed in turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from resources import backend, by_name, cluster, endpoints, listener, route

from eventually import eventually
from node_rig import Control
from relay_rig import doorway, pod, until
from weft.envoy import binary
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.node.door import MOST_STREAMS, DoorError
from weft.node.own import ClientCredentials
from weft.node.relay import Relay, _making, own_line
from weft.translate.names import AGAIN
from weft.xds.clients import Sync
from weft.xds.node_server import NodeServer
from weft.xds.server import OPTIONS
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from weft.xds.upstream import Line, NoLine

pytestmark = pytest.mark.root

# An empty response counts as an update; these statistics count real changes.
CHANGES = r"(cluster|listener)_(added|modified|removed)|cluster\.a\.update_success|config_reload$"
EVERY = frozenset({CLUSTER, ENDPOINT, LISTENER, ROUTE})


class Envoy:
    def __init__(self, name, directory, socket):
        self._name, self._directory, self._socket = name, directory, socket
        self._process = None
        self.session = None

    async def start(self):
        backoff = {"base_interval": "0.05s", "max_interval": "0.1s"}
        ads = {"envoy_grpc": {"cluster_name": "xds", "retry_policy": {"retry_back_off": backoff}}}
        source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
        options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        endpoint = {"endpoint": {"address": {"pipe": {"path": str(self._socket)}}}}
        agent = {
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
        bootstrap = {
            "node": {"id": self._name, "cluster": "test"},
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    "grpc_services": [ads],
                    "set_node_on_first_message_only": True,
                },
                "cds_config": source,
                "lds_config": source,
            },
            "static_resources": {"clusters": [agent]},
        }
        self._directory.mkdir(exist_ok=True)
        self._directory.chmod(0o777)
        admin, log = self._directory / "admin", self._directory / "log"
        admin.unlink(missing_ok=True)
        with log.open("a") as output:
            self._process = await asyncio.create_subprocess_exec(
                *("setpriv", f"--reuid={PROXY_UID}", f"--regid={PROXY_GID}", "--clear-groups"),
                str(binary.find()),
                *("--config-yaml", json.dumps(bootstrap), "--admin-address-path", str(admin)),
                *("--concurrency", "1", "--disable-hot-restart", "-l", "warning"),
                stdout=output,
                stderr=output,
            )

        def started():
            assert self._process.returncode is None, log.read_text()
            return admin.exists() and admin.read_text()

        await eventually(started)
        self._admin = admin.read_text()
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))

    async def kill(self):
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            if self.session is not None:
                await self.session.close()
            self._process = None

    async def get(self, path):
        async with self.session.get(f"http://{self._admin}{path}") as answer:
            return json.loads(await answer.text())

    async def counted(self, pattern):
        return {
            each["name"]: each["value"] for each in (await self.get(f"/stats?format=json&filter={pattern}"))["stats"]
        }

    async def clusters(self):
        dump = await self.get("/config_dump?resource=dynamic_active_clusters")
        return {each["cluster"]["name"]: each["cluster"] for each in dump.get("configs", [])}

    async def ask(self, name="l"):
        """Return the response at a listener, once the listener is live."""

        async def answered():
            for status in (await self.get("/listeners?format=json")).get("listener_statuses", []):
                if status["name"] == name:
                    port = status["local_address"]["socket_address"]["port_value"]
                    async with self.session.get(f"http://127.0.0.1:{port}/") as answer:
                        return answer.status, await answer.text()
            return None

        return await eventually(answered, retry=aiohttp.ClientError)


class Machine:
    """A control plane with named groups, an agent, and Envoys."""

    def __init__(self, directory):
        self.directory = directory
        self.control = Control({})
        self._control_server = None
        self.relay = None
        self._envoys = {}

    async def control_up(self, control=None):
        self.control = control or self.control
        self.nodes = NodeServer(self.control.snapshots, self.control)
        self._control_server = grpc.aio.server(options=OPTIONS)

        async def anybody(_peer, _token):
            return None

        self._control_server.add_generic_rpc_handlers((self.nodes.handlers(anybody),))
        self._control_server.add_insecure_port(f"unix:{self.directory}/control.sock")
        await self._control_server.start()

    async def control_down(self):
        await self._control_server.stop(None)
        self._control_server = None
        await until(lambda: not self.relay.upstream.connected)

    def agent_up(self):
        async def line():
            return Line(target=f"unix:{self.directory}/control.sock")

        self.relay = Relay(self.directory / "private", "node-1", line)
        self.relay.start()

    async def agent_down(self):
        await self.relay.close()

    def place(self, name, group):
        self.control.placed[f"uid-{name}"] = group
        self.control.moved()

    def doorway(self, name):
        return doorway(self.directory / name, uid=PROXY_UID, gid=PROXY_GID)

    async def add(self, name, group=None):
        if group is not None:
            self.place(name, group)
        await self.relay.add(pod(name), self.doorway(name))

    async def envoy(self, name):
        made = self._envoys[name] = Envoy(name, self.directory / f"envoy-{name}", self.directory / name / "xds")
        await made.start()
        return made

    def synced(self, name):
        return any(
            each.node.id == name
            and each.types.keys() >= EVERY
            and all(status.sync is Sync.SYNCED for status in each.types.values())
            for each in self.relay.streams()
        )

    async def close(self):
        for envoy in self._envoys.values():
            await envoy.kill()
        await self.relay.close()
        if self._control_server is not None:
            await self._control_server.stop(None)


@pytest.fixture
async def machine():
    directory = Path(tempfile.mkdtemp(prefix="weft-relay-"))  # that another user can enter
    directory.chmod(0o755)
    made = Machine(directory)
    await made.control_up()
    made.agent_up()
    yield made
    await made.close()
    shutil.rmtree(directory)


def shop(port, **more):
    return {
        CLUSTER: by_name(cluster("a", **more)),
        ENDPOINT: by_name(endpoints("a", port)),
        LISTENER: by_name(listener("l", "r")),
        ROUTE: by_name(route("r", "a")),
    }


async def test_envoys_of_two_groups_get_each_their_own_through_one_stream(machine):
    async with backend("web") as web, backend("api") as api:
        machine.control.snapshots.replace("web", shop(web))
        machine.control.snapshots.replace("api", shop(api))
        for name, group in (("web-0", "web"), ("web-1", "web"), ("api-0", "api")):
            await machine.add(name, group)
        envoys = {name: await machine.envoy(name) for name in ("web-0", "web-1", "api-0")}
        for name, answer in (("web-0", "web"), ("web-1", "web"), ("api-0", "api")):
            assert await envoys[name].ask() == (200, answer)
        assert machine.relay.upstream.calls == 1 and len(machine.nodes.nodes()) == 1
        machine.control.snapshots.update("web", {ENDPOINT: by_name(endpoints("a", api))})
        await until(lambda: machine.synced("web-0") and machine.synced("web-1"))
        await eventually(lambda: envoys["web-0"].ask(), lambda value: value == (200, "api"))


@contextlib.asynccontextmanager
async def web(machine, pod):
    """The Envoy of a pod of `web`, once it has its config, and the port of its listener."""
    async with backend("web") as port:
        machine.control.snapshots.replace("web", shop(port))
        await machine.add(pod, "web")
        envoy = await machine.envoy(pod)
        assert await envoy.ask() == (200, "web")
        yield envoy, port


async def test_without_a_control_plane_envoys_run_on_restart_and_start(machine):
    async with web(machine, "web-5d4f-x2x7k") as (envoy, _):
        await machine.control_down()
        assert await envoy.ask() == (200, "web")
        await envoy.kill()
        await envoy.start()
        assert await envoy.ask() == (200, "web")
        await machine.add("web-5d4f-b4zqt")  # a pod of the same controller, without a control plane
        late = await machine.envoy("web-5d4f-b4zqt")
        assert await late.ask() == (200, "web")
        await machine.add("other-77-ccccc")
        assert not machine.relay.placed("uid-other-77-ccccc")
        assert machine.relay.lack(pod("web-5d4f-c7bbb")) == ""
        assert "no connection to the control plane: " in machine.relay.lack(pod("other-77-ccccc"))
        await machine.control_up()
        await until(lambda: not machine.relay.lack(pod("other-77-ccccc")))


async def test_a_restarted_control_plane_sends_no_unchanged_resource(machine):
    async with web(machine, "web-0") as (envoy, _):
        await until(lambda: machine.synced("web-0"))
        before = await envoy.counted(CHANGES)
        await machine.control_down()
        received = machine.relay.upstream.bytes_received
        await machine.control_up(machine.control.anew())
        await until(lambda: machine.relay.upstream.connected and machine.nodes.nodes()[0].settled)
        assert machine.relay.upstream.bytes_received - received < 100
        assert await envoy.counted(CHANGES) == before


async def test_without_an_agent_envoys_keep_their_config_and_the_next_agent_sends_no_change(machine):
    async with web(machine, "web-0") as (envoy, _):
        await until(lambda: machine.synced("web-0"))
        before = await envoy.counted(CHANGES)
        await machine.agent_down()
        assert await envoy.ask() == (200, "web")
        # Without a control plane the next agent has no config, and must not send an empty one.
        await machine._control_server.stop(None)
        machine.agent_up()
        await machine.add("web-0")
        await until(lambda: machine.relay._waiting["uid-web-0"])  # its proxy is connected and waits
        assert await envoy.ask() == (200, "web")
        await machine.control_up(machine.control.anew())
        await until(lambda: machine.synced("web-0"))
        assert await envoy.ask() == (200, "web")
        assert await envoy.counted(CHANGES) == before
        machine.control.snapshots.update("web", {CLUSTER: by_name(cluster("b"))})
        await eventually(envoy.clusters, lambda value: set(value) == {"a", "b"})


NOBODY_CALLED = {
    CLUSTER: by_name(cluster("base")),
    ENDPOINT: by_name(endpoints("base", 1)),
    LISTENER: by_name(listener(AGAIN, "rest")),
    ROUTE: by_name(route("rest", "base")),
}


@contextlib.asynccontextmanager
async def caller(machine):
    """An Envoy with on-demand clusters, and another control plane, without an agent yet, that does not know them."""
    async with backend("web") as port:
        name = "outbound|80||a"
        made = {
            CLUSTER: cluster(name),
            ENDPOINT: endpoints(name, port),
            LISTENER: listener("l", "r"),
            ROUTE: route("r", name),
        }
        whole = {type_url: {**NOBODY_CALLED[type_url], each.name: each} for type_url, each in made.items()}
        machine.control.snapshots.replace("web", whole)
        await machine.add("web-0", "web")
        envoy = await machine.envoy("web-0")
        assert await envoy.ask() == (200, "web")
        await machine.agent_down()
        await machine._control_server.stop(None)
        other = Control(machine.control.placed)
        other.snapshots.replace("web", NOBODY_CALLED)
        await machine.control_up(other)
        machine.agent_up()
        yield envoy, whole


async def test_the_next_agent_requests_an_envoys_on_demand_clusters_before_it_sends_updates(machine):
    async with caller(machine) as (envoy, whole):
        before = await envoy.counted(CHANGES)
        machine.control.want = lambda group, names, had=(): machine.control.snapshots.replace(group, whole)
        say = machine.relay._copy.wanted_frames
        machine.relay._copy.wanted_frames = list  # it delays its requests
        await machine.add("web-0")
        await until(lambda: any(each.types.keys() >= EVERY for each in machine.relay.streams()))
        assert await envoy.ask() == (200, "web")
        machine.relay._copy.wanted_frames = say
        machine.relay._copy.changed()
        await until(lambda: machine.synced("web-0"))
        assert await envoy.counted(CHANGES) == before
        assert await envoy.ask() == (200, "web")


async def test_an_envoy_gets_the_current_config_if_the_control_plane_does_not_respond_about_on_demand_clusters(
    machine, monkeypatch
):
    """The control plane does not answer requests of on-demand clusters. While there is none, the Envoy keeps what it
    has."""
    monkeypatch.setattr("weft.node.relay.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("weft.node.relay._LOOK_SECONDS", 0.02)
    async with caller(machine) as (envoy, _):
        machine.relay._copy._note_reply = lambda group, number: None
        await machine.add("web-0")
        await until(lambda: machine.relay.streams() and machine.control.wanted)
        assert machine.control.wanted == [("web", ("outbound|80||a",), True)]
        await eventually(envoy.clusters, lambda value: set(value) == {"base"})
        await machine.control_down()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(machine.relay._answered("web", 1), 1)


async def test_a_pod_whose_group_changes_is_given_the_other_config_without_a_gap(machine):
    async with backend("web") as web, backend("gold") as gold:
        machine.control.snapshots.replace("web", shop(web))
        machine.control.snapshots.replace("gold", shop(gold))
        await machine.add("web-0", "web")
        envoy = await machine.envoy("web-0")
        assert await envoy.ask() == (200, "web")
        machine.place("web-0", "gold")

        def changed(answer):
            assert answer in ((200, "web"), (200, "gold"))
            return answer == (200, "gold")

        await eventually(envoy.ask, changed)
        await until(lambda: machine.relay._copy.snapshots.groups() == ["gold"])


async def test_a_removed_pod_has_no_socket_and_its_group_no_copy(machine):
    machine.control.snapshots.replace("web", shop(1))
    await machine.add("web-0", "web")
    await until(lambda: machine.relay.placed("uid-web-0"))
    await machine.relay.remove("uid-web-0")
    await machine.relay.remove("uid-web-0")
    assert not (machine.directory / "web-0").exists()
    await until(lambda: machine.relay._copy.snapshots.groups() == [] and not machine.control.held)


async def test_a_bad_resource_is_rejected_and_quarantined_without_affecting_others(machine):
    async with web(machine, "web-0") as (envoy, port):
        good = machine.control.snapshots.resources("web", CLUSTER)["a"].version
        await until(lambda: machine.control.snapshots.accepted("web", CLUSTER, "a"))
        bad = cluster("a", connect_timeout="-1s")
        more = {
            CLUSTER: by_name(cluster("b"), bad, cluster("c")),
            ENDPOINT: by_name(endpoints("b", port), endpoints("c", port)),
        }
        machine.control.snapshots.update("web", more)
        refused = lambda: [each for each in machine.control.heard if not isinstance(each, tuple)]  # noqa: E731
        await until(refused)
        (culprit,) = refused()
        assert (culprit.group, culprit.type_url, culprit.name, culprit.version) == ("web", CLUSTER, "a", bad.version)
        assert culprit.node_id == "web-0" and "Expected positive duration" in culprit.message
        assert machine.control.snapshots.resources("web", CLUSTER)["a"].version == good
        await eventually(envoy.clusters, lambda value: set(value) == {"a", "b", "c"})
        assert (await envoy.clusters())["a"]["connect_timeout"] == "2s"
        assert await envoy.ask() == (200, "web")


async def test_two_groups_that_share_a_thousand_services_cost_as_much_as_one(machine):
    services = {f"service-{number}": cluster(f"service-{number}") for number in range(1000)}
    addresses = {name: endpoints(name, 1, 2, 3) for name in services}
    one = {**shop(1), CLUSTER: services, ENDPOINT: addresses}
    size = sum(len(each.body) for table in one.values() for each in table.values())
    machine.control.snapshots.replace("web", one)
    await machine.add("web-0", "web")
    await until(lambda: machine.relay.placed("uid-web-0"))
    first = machine.relay.upstream.bytes_received
    assert size < first < size + 1000 * 2 * 80  # names and versions
    machine.control.snapshots.replace("api", {**one, LISTENER: by_name(listener("own", "r"))})
    await machine.add("api-0", "api")
    await until(lambda: machine.relay.placed("uid-api-0"))
    second = machine.relay.upstream.bytes_received - first
    assert second < 1000 * 2 * 80
    assert machine.nodes.nodes()[0].bytes_sent == first + second
    copies = machine.relay._copy.snapshots
    for name in ("service-0", "service-999"):
        assert copies.resources("web", CLUSTER)[name] is copies.resources("api", CLUSTER)[name]


async def test_a_socket_that_cannot_be_made_is_an_error_and_leaves_nothing(machine):
    (machine.directory / "web-0").mkdir()
    (machine.directory / "web-0" / "stranger").touch()
    with pytest.raises(DoorError, match="stranger"):
        await machine.add("web-0")
    assert not list((machine.directory / "private").iterdir())


async def test_one_pod_cannot_take_the_agents_memory_from_the_others_with_streams(machine):
    machine.control.snapshots.replace("web", shop(1))
    await machine.add("web-0", "web")
    await until(lambda: machine.relay.placed("uid-web-0"))
    [behind] = (machine.directory / "private").iterdir()  # the door
    async with grpc.aio.insecure_channel(f"unix:{behind}") as channel:
        method = channel.stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        )
        calls = [method() for _ in range(MOST_STREAMS + 1)]
        ended, _ = await asyncio.wait(
            [asyncio.ensure_future(each.code()) for each in calls], timeout=20, return_when=asyncio.FIRST_COMPLETED
        )
        assert [each.result() for each in ended] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        for each in calls:
            each.cancel()


async def test_the_agents_certificate_and_token_are_read_before_every_connection():
    class Own:
        held = None

        async def token(self):
            return "token"

    own = Own()
    line = own_line(own, "control:15012")
    with pytest.raises(NoLine, match="no certificate"):
        await line()
    own.held = ClientCredentials(b"chain", b"key", b"roots")
    made = await line()
    assert (made.chain, made.key, made.roots, made.token) == ("chain", b"key", "roots", "token")
    assert "key" not in repr(made) and "token" not in repr(made)


def test_pods_have_the_same_controller_only_if_a_controller_named_them():
    """A pod named by a person is not served the config of a pod with a similar name, which may have other policies."""
    assert (
        _making(pod("web-7d9f8c6b5-x2x7k")) == _making(pod("web-7d9f8c6b5-b4zqt")) == ("shop", "web", "web-7d9f8c6b5")
    )
    assert _making(pod("db-0")) == _making(pod("db-12")) != _making(pod("db-0", account="other"))
    assert [_making(pod(name)) for name in ("db-admin", "db-public", "db")] == [None, None, None]
