import asyncio
import logging
import os
import shutil
import signal
from urllib.parse import urlsplit

import msgspec
import pytest
from tools.kube.api_server import ApiServer, started

from eventually import eventually
from kube.following import QUICK, ConfigMap, config_map, connected, following, put
from kube.wire import wire
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.kube.error import ApiError
from weft.kube.reflector import Event, WatchTiming, reflect
from weft.kube.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, ResourceKind

WIDGETS = ResourceKind("reflector.example.org", "v1", "widgets", "Widget")


@pytest.fixture
async def line(api_server):
    address = urlsplit(api_server.server)
    async with wire(address.hostname, address.port) as line:
        yield line


@pytest.fixture
async def remote(api_server, line):
    """The same server, seen over a line that the test can stall and cut."""
    async with connected(api_server, server=f"https://127.0.0.1:{line.port}") as client:
        yield client


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory):
    """One that has no WatchList, and refuses it."""
    arguments = ["--endpoint-reconciler-type=none", "--feature-gates=WatchList=false"]
    server = ApiServer(tmp_path_factory.mktemp("plain"), arguments=arguments)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["with-watch-list", "without-watch-list"])
def any_server(api_server, request):
    return api_server if request.param == "with-watch-list" else request.getfixturevalue("plain_server")


@pytest.fixture
async def either(any_server):
    async with connected(any_server) as client:
        yield client


@pytest.fixture
def either_namespace(any_server, request):
    return any_server.make_namespace("reflector-" + str(abs(hash(request.node.name)))[:10])


async def _lists(client, namespace, monkeypatch):
    """How often a list was asked for until the first batch was there."""
    asked = []
    pages = client.pages
    monkeypatch.setattr(client, "pages", lambda *a, **k: asked.append(1) or pages(*a, **k))
    async with following(client, namespace=namespace):
        return len(asked)


async def test_a_list_is_requested_only_if_the_server_has_no_watch_list(api_server, plain_server, monkeypatch):
    async with connected(api_server) as client:
        assert await _lists(client, "default", monkeypatch) == 0
    async with connected(plain_server) as client:
        assert await _lists(client, "default", monkeypatch) == 1


async def test_the_first_batch_has_all_objects_and_each_change_follows(either, either_namespace):
    await put(either, either_namespace, "one", a="1")
    await put(either, either_namespace, "two", a="1")
    async with following(either, namespace=either_namespace) as told:
        assert {event.name for event in told.batches[0]} == {"one", "two"}
        assert told.batches[0][0] == Event(either_namespace, "one", ConfigMap({"a": "1"}))
        await put(either, either_namespace, "one", a="2")
        await told.until(lambda told: told.objects["one"].data == {"a": "2"})
        await either.delete(CONFIG_MAPS, "two", namespace=either_namespace)
        await told.until(lambda told: "two" not in told.objects)
        assert told.batches[-1] == (Event(either_namespace, "two", None),)
        await put(either, either_namespace, "three")
        await told.until(lambda told: "three" in told.objects)
    assert told.problems == []


async def test_the_first_batch_is_empty_if_there_are_no_objects(either, either_namespace):
    async with following(either, namespace=either_namespace) as told:
        assert told.batches == [()]


async def test_a_list_of_several_pages_is_one_batch(plain_server):
    namespace = plain_server.make_namespace("pages")
    async with connected(plain_server) as client:
        for number in range(7):
            await put(client, namespace, f"number-{number}")
        timing = msgspec.structs.replace(QUICK, page=3)
        async with following(client, namespace=namespace, timing=timing) as told:
            assert len(told.batches[0]) == 7


async def test_an_object_that_no_longer_matches_the_selector_is_reported_as_deleted(client, namespace):
    manifest = config_map(namespace, "one")
    manifest["metadata"]["labels"] = {"mine": "yes"}
    await client.apply(manifest, manager="test")
    await put(client, namespace, "two")
    async with (
        following(client, namespace=namespace, labels="mine=yes") as told,
        following(client, namespace=namespace, fields="metadata.name=two") as two,
    ):
        assert set(told.objects) == {"one"}
        assert set(two.objects) == {"two"}
        await client.patch(CONFIG_MAPS, "one", {"metadata": {"labels": {"mine": None}}}, namespace=namespace)
        await told.until(lambda told: not told.objects)


async def test_events_that_can_be_read_at_once_are_one_batch_with_the_last_state_of_each_object(client, namespace):
    stream = reflect(client, CONFIG_MAPS, ConfigMap, namespace=namespace, timing=QUICK)
    assert await anext(stream) == ()
    for number in range(10):
        await put(client, namespace, "busy", n=str(number))
    await put(client, namespace, "gone")
    await client.delete(CONFIG_MAPS, "gone", namespace=namespace)
    await put(client, namespace, "last")
    seen, batches = {}, 0
    async for batch in stream:
        batches += 1
        seen |= {event.name: event.object for event in batch}
        if "last" in seen:
            break
    await stream.aclose()
    assert seen == {"busy": ConfigMap({"n": "9"}), "gone": None, "last": ConfigMap(None)}
    assert batches < 6


async def test_an_object_that_cannot_be_decoded_does_not_affect_others(either, either_namespace, caplog):
    class Strict(msgspec.Struct):
        data: dict[str, str]

    await put(either, either_namespace, "good", a="1")
    await put(either, either_namespace, "other", a="1")
    await put(either, either_namespace, "without-data")
    async with following(either, CONFIG_MAPS, Strict, namespace=either_namespace) as told:
        assert set(told.objects) == {"good", "other"}
        assert f"ConfigMap {either_namespace}/without-data: cannot be decoded" in caplog.text
        await either.patch(CONFIG_MAPS, "good", {"data": None}, namespace=either_namespace)
        await put(either, either_namespace, "other", a="2")
        await told.until(lambda told: told.objects["other"].data == {"a": "2"})
        assert told.objects["good"].data == {"a": "1"}, "it stays as it was"


async def test_a_watch_continues_from_its_version_after_a_broken_connection(remote, client, line, namespace):
    await put(client, namespace, "kept")
    await put(client, namespace, "deleted-meanwhile")
    async with following(remote, namespace=namespace) as told:
        line.stall()
        line.cut()
        await client.delete(CONFIG_MAPS, "deleted-meanwhile", namespace=namespace)
        await put(client, namespace, "made-meanwhile")
        line.flow()
        await told.until(lambda told: set(told.objects) == {"kept", "made-meanwhile"})
        assert sum(event.name == "kept" for batch in told.batches for event in batch) == 1


async def test_a_silent_connection_times_out_and_no_object_is_reported_as_deleted(remote, client, line, namespace):
    await put(client, namespace, "kept")
    async with following(remote, namespace=namespace) as told:
        line.stall()
        await told.until(lambda told: told.problems)
        assert "has stopped sending data" in told.problems[0].what
        assert set(told.objects) == {"kept"}
        await put(client, namespace, "made-meanwhile")
        line.flow()
        await told.until(lambda told: told.problems[-1] is None)
        await told.until(lambda told: set(told.objects) == {"kept", "made-meanwhile"})
        assert told.gone == []


async def test_the_reflector_begins_when_the_server_is_up(remote, client, line, namespace, monkeypatch):
    monkeypatch.setattr("weft.kube.transport._CONNECT_TIMEOUT", 1.0)
    await put(client, namespace, "one")
    line.stall()
    async with following(remote, namespace=namespace) as told:
        assert told.batches == []
        line.flow()
        await told.until(lambda told: told.batches)
        assert set(told.objects) == {"one"}


async def test_a_stalled_watch_list_is_replaced_by_pages(remote, client, line, namespace):
    for number in range(4):
        await put(client, namespace, f"large-{number}", text="x" * 300_000)
    line.stall_after(500_000)
    timing = msgspec.structs.replace(QUICK, initial_silence=0.5, inactivity=100.0)
    async with following(remote, namespace=namespace, timing=timing) as told:
        assert "WatchList has stalled" in told.problems[0].what
        assert told.batches == [], "half a list is none"
        line.flow()
        await told.until(lambda told: told.batches)
        assert len(told.batches[0]) == 4


async def test_a_new_watch_continues_after_the_server_ended_one(client, namespace):
    timing = msgspec.structs.replace(QUICK, longest_watch=0.5, inactivity=30.0)
    async with following(client, namespace=namespace, timing=timing) as told:
        for number in range(3):
            await asyncio.sleep(1.1)  # a watch's life, which is the thing to outlast
            await put(client, namespace, f"number-{number}")
            await told.until(lambda told, number=number: f"number-{number}" in told.objects)
    assert told.problems == []


async def test_a_missing_kind_is_waited_for_and_removing_it_deletes_its_objects(client, api_server, caplog):
    caplog.set_level(logging.INFO, "weft.kube")
    async with following(client, WIDGETS, dict) as told:
        assert told.batches == [()]
        await _define(client)
        await _create_widget(client, "first")
        await told.until(lambda told: "first" in told.objects)
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.reflector.example.org")
        await told.until(lambda told: told.gone == ["first"])
        await _define(client)
        await _create_widget(client, "second")
        await told.until(lambda told: set(told.objects) == {"second"})
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.reflector.example.org")
    assert told.problems == []
    assert "cannot be watched" not in caplog.text


async def test_a_forbidden_kind_is_reported_once_and_read_when_it_is_allowed(client, api_server, namespace):
    token = api_server.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": {"audiences": []}}
    )["status"]["token"]
    await put(client, namespace, "one")
    connection = ApiConnection(server=api_server.server, ca_file=str(api_server.ca), token=token)
    async with Client(connection) as nobody, following(nobody, namespace=namespace) as told:
        assert told.batches == []
        problem = told.problems[0]
        assert "configmaps is forbidden" in problem.what
        assert f"system:serviceaccount:{namespace}:default" in problem.what
        assert "verbs list and watch on configmaps" in problem.hint
        await _allow(client, namespace)
        await told.until(lambda told: "one" in told.objects)
        assert told.problems == [problem, None]


async def test_a_404_of_another_server_deletes_nothing(api_server, client, namespace):
    """Something that is not an API server may stand in its place for a while, and says 404 to everything."""

    async def say_404(reader, writer):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot here\n")

    await put(client, namespace, "kept")
    address = urlsplit(api_server.server)
    server = await asyncio.start_server(say_404, "127.0.0.1", 0)
    impostor = server.sockets[0].getsockname()[1]

    class Elsewhere(Client):
        here = True

        def _session(self):
            port = address.port if self.here else impostor
            scheme = "https" if self.here else "http"
            self.connection = msgspec.structs.replace(self.connection, server=f"{scheme}://127.0.0.1:{port}")
            return super()._session()

    async with connected(api_server) as made, Elsewhere(made.connection) as moved:
        timing = msgspec.structs.replace(QUICK, longest_watch=0.5)
        async with following(moved, namespace=namespace, timing=timing) as told:
            moved.here = False
            await told.until(lambda told: told.problems)
            assert "404" in told.problems[0].what
            moved.here = True
            await told.until(lambda told: told.problems[-1] is None)
            assert told.gone == []
            await put(client, namespace, "next")
            await told.until(lambda told: "next" in told.objects)
    server.close()


async def test_an_expired_token_is_replaced_by_the_new_token_in_the_file(api_server, client, namespace, tmp_path):
    """The watch outlives the token; the next one begins with what the file holds then."""
    (tmp_path / "token").write_text(api_server.token)
    connection = ApiConnection(server=api_server.server, ca_file=str(api_server.ca), token_file=str(tmp_path / "token"))
    timing = msgspec.structs.replace(QUICK, longest_watch=0.5)
    async with Client(connection) as rotating, following(rotating, namespace=namespace, timing=timing) as told:
        (tmp_path / "token").write_text("no-longer-good")
        await told.until(lambda told: told.problems)
        assert "401" in told.problems[0].what
        assert "no-longer-good" not in str(told.problems)
        (tmp_path / "token").write_text(api_server.token)
        await put(client, namespace, "one")
        await told.until(lambda told: "one" in told.objects)


@pytest.mark.kube
@pytest.mark.timeout(300)
async def test_the_reflector_survives_random_failures_of_the_server(tmp_path, caplog):
    caplog.set_level(logging.INFO, "weft.kube")
    with started(tmp_path / "server") as server:
        async with connected(server) as client:
            server.make_namespace("shop")
            for name in ("one", "two", "three"):
                await put(client, "shop", name, a="1")
            async with following(client, namespace="shop") as told, following(client, NAMESPACES, dict) as namespaces:
                await _frozen_server_deletes_nothing(server, told)
                await _killed_server_deletes_nothing_and_changes_are_seen_after(server, client, told)
                await _compaction_while_away_leads_to_a_new_list(server, client, told, caplog)
                await _older_data_is_read_anew(server, client, told, caplog)
                assert "shop" in namespaces.objects


async def _frozen_server_deletes_nothing(server, told):
    os.kill(server.api.pid(), signal.SIGSTOP)
    try:
        await told.until(lambda told: told.problems)
    finally:
        os.kill(server.api.pid(), signal.SIGCONT)
    await told.until(lambda told: told.problems[-1] is None)
    assert set(told.objects) == {"one", "two", "three"}
    assert told.gone == []


async def _killed_server_deletes_nothing_and_changes_are_seen_after(server, client, told):
    told.problems.clear()
    await asyncio.to_thread(server.api.stop, kill=True)
    await told.until(lambda told: told.problems)
    assert told.gone == []
    await asyncio.to_thread(server.start_api)
    await put(client, "shop", "four")
    await told.until(lambda told: "four" in told.objects)
    assert told.gone == []
    assert sum(event.name == "one" for batch in told.batches for event in batch) == 1, "it has not changed"


async def _compaction_while_away_leads_to_a_new_list(server, client, told, caplog):
    """Our line is down while the objects are deleted, and etcd has forgotten how when it is back."""
    caplog.clear()
    told.batches.clear()
    address = urlsplit(server.server)
    async with (
        wire(address.hostname, address.port) as line,
        connected(server, server=f"https://127.0.0.1:{line.port}") as remote,
        following(remote, namespace="shop") as far,
    ):
        line.stall()
        line.cut()
        await client.delete(CONFIG_MAPS, "two", namespace="shop")
        await put(client, "shop", "one", a="2")
        for number in range(5):
            await put(client, "shop", "noise", n=str(number))
        await asyncio.to_thread(server.api.stop, kill=True)
        await asyncio.to_thread(server.start_api)  # whose cache begins with now
        await asyncio.to_thread(server.compact)
        line.flow()
        await far.until(lambda far: set(far.objects) == {"one", "three", "four", "noise"})
        assert far.gone == ["two"]
        assert far.objects["one"].data == {"a": "2"}
        assert sum(event.name == "three" for batch in far.batches for event in batch) == 1, "it has not changed"
    assert "no longer has version" in caplog.text
    await told.until(lambda told: set(told.objects) == {"one", "three", "four", "noise"})


async def _older_data_is_read_anew(server, client, told, caplog):
    """A backup is restored: versions count on from an older one, and a watch from ours would never speak."""
    await asyncio.to_thread(server.stop)
    saved, data = server.directory / "saved", server.directory / "etcd"
    shutil.copytree(data, saved)
    await asyncio.to_thread(server.start)
    await client.delete(CONFIG_MAPS, "three", namespace="shop")
    for number in range(300):
        await client.patch(CONFIG_MAPS, "noise", {"data": {"n": str(number + 10)}}, namespace="shop")
    await told.until(lambda told: "three" not in told.objects and told.objects["noise"].data == {"n": "309"})
    await asyncio.to_thread(server.stop)
    shutil.rmtree(data)
    saved.rename(data)
    await asyncio.to_thread(server.start)
    await told.until(lambda told: "three" in told.objects and told.objects["noise"].data == {"n": "4"})
    assert "older than before" in caplog.text


async def test_only_the_fields_of_the_type_are_decoded(client, namespace):
    class Nothing(msgspec.Struct):
        pass

    await put(client, namespace, "one", a="1")
    async with following(client, CONFIG_MAPS, Nothing, namespace=namespace) as told:
        assert told.objects == {"one": Nothing()}


async def test_closing_the_generator_ends_the_watch_at_once(client, namespace):
    stream = reflect(client, CONFIG_MAPS, ConfigMap, namespace=namespace, timing=WatchTiming())
    await anext(stream)
    async with asyncio.timeout(30):  # a watch itself lives for minutes
        await stream.aclose()


async def test_without_a_namespace_the_whole_cluster_is_watched(client, namespace):
    await put(client, namespace, "everywhere")
    async with following(client) as told:
        assert "everywhere" in told.objects
    async with following(client, PODS, dict, labels="nobody=has-it") as pods:
        assert pods.batches == [()]


async def _define(client):
    """Waits for the name of one that is just going away."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.reflector.example.org"},
        "spec": {
            "group": "reflector.example.org",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }

    async def created():
        try:
            return await client.create(CUSTOM_RESOURCE_DEFINITIONS, manifest)
        except ApiError as error:
            if not error.already_exists:
                raise

    await eventually(created, lambda definition: definition is not None, limit=60, every=0.1)


async def _create_widget(client, name):
    manifest = {"apiVersion": "reflector.example.org/v1", "kind": "Widget", "metadata": {"name": name}}

    async def created():
        try:
            return await client.create(WIDGETS, manifest, namespace="default")
        except ApiError as error:
            if not error.not_found:
                raise

    await eventually(created, lambda widget: widget is not None, limit=60, every=0.1)


async def _allow(client, namespace):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"namespace": namespace, "name": "read"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": "read"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    await client.apply(role, manager="test")
    await client.apply(binding, manager="test")
