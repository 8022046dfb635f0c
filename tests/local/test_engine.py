from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import host
from eventually import eventually, eventually_blocking
from local.rig import CALLER, SERVER, SERVICE, mesh, pods, settings, traces, unique, web
from weft.local.engine import Engine
from weft.local.error import LocalError
from weft.local.run_directory import acquire, clean, has_ended, namespace_prefix
from weft.model.names import ObjectKey
from weft.netns import namespace

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("run_base")]


@pytest.mark.parametrize("version", [4, 6])
async def test_a_call_to_a_service_passes_both_proxies(version):
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        status, body = await rig.fetch("caller", rig.address(version=version))
        assert (status, body) == (200, "v1 127.0.0.6 web-0")
        await rig.engine.observer.scrape()
        (edge,) = [edge for edge in rig.engine.status().edges if edge.source == "shop/caller"]
        assert (edge.destination, edge.port, edge.requests) == ("web.shop.svc.cluster.local", 80, 1)


async def test_a_call_to_a_pods_own_address_is_intercepted_in_both_families():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        ipv4, ipv6 = rig.pod("web").plan.addresses.texts
        assert await rig.fetch("caller", ipv4, 8080) == (200, "v1 127.0.0.6 web-0")
        assert await rig.fetch("caller", ipv6, 8080) == (200, "v1 ::6 web-0")


async def test_an_app_that_listens_on_ipv4_alone_is_called_there_alone():
    """Calls by the pods' names, with and without a proxy. In the other IP family the proxy would accept the call and
    could not forward it."""
    only_four = web().replace("server.py", "four.py")
    headless = SERVICE.replace("name: web,", "name: pods,").replace("spec:", "spec:\n  clusterIP: None")
    outside = CALLER.replace("name: caller,", "name: outside,").replace(
        "labels:", "annotations: {sidecar.istio.io/inject: 'false'}, labels:"
    )
    async with mesh(SERVICE, headless, CALLER, outside) as rig:
        server = (rig.directory / "server.py").read_text()
        (rig.directory / "four.py").write_text(server.replace("AF_INET6", "AF_INET").replace('"::"', '"0.0.0.0"'))
        rig.write("web.yaml", only_four)
        await rig.until_ready("caller-0", "outside-0", "web-0")
        ask = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
        for caller, url in (("caller", "http://web-0.pods:8080"), ("caller", "http://web"), ("outside", "http://web")):
            assert await rig.run_in(caller, "python3", "-c", ask, url) == "v1 127.0.0.6 web-0"


async def test_a_pod_reaches_itself_through_its_own_service():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        assert await rig.fetch("web", rig.address()) == (200, "v1 127.0.0.6 web-0")


async def test_the_mesh_and_its_run_directory_may_lie_together_below_a_closed_directory(monkeypatch):
    closed = Path(tempfile.mkdtemp(prefix="weft-closed-", dir="/tmp"))  # 0700, as a home directory may be
    monkeypatch.setenv("WEFT_RUN_DIR", str(closed / "run"))
    try:
        async with mesh(SERVICE, web(), CALLER, inside=closed) as rig:
            await rig.until_ready("web-0", "caller-0")
            assert rig.address() in await rig.run_in("caller-0", "getent", "ahostsv4", "web")
    finally:
        shutil.rmtree(closed)


async def test_names_resolve_inside_a_pod_by_its_own_resolver_file():
    program = "import socket; print(sorted({each[4][0] for each in socket.getaddrinfo('%s', 80)}))"
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        expected = str(sorted((rig.address(), rig.address(version=6))))
        for name in ("web", "web.shop", "web.shop.svc", "web.shop.svc.cluster.local"):
            assert await rig.run_in("caller", "python3", "-c", program % name) == expected
        assert await rig.run_in("caller", "sh", "-c", "id -u; echo $POD_NAME $POD_NAMESPACE $HOME") == (
            f"{rig.pod('caller').plan.uid}\ncaller-0 shop /tmp"
        )


async def test_garbage_and_a_bad_workload_change_nothing_but_the_problems():
    async with mesh(SERVICE, web()) as rig:
        before = pods(await rig.until_ready("web-0"))
        rig.write("garbage.yaml", "\0\1 {{{ not: [yaml")
        rig.write("1.yaml", web().replace("replicas: 1", "replicaz: many"))
        status = await rig.until(lambda status: len(status.problems) >= 2)
        assert any("replicaz" in problem.what for problem in status.problems)
        assert [(pod.name, pod.pid) for pod in pods(status)] == [(pod.name, pod.pid) for pod in before]
        rig.write("1.yaml", web())
        (rig.directory / "garbage.yaml").unlink()
        await rig.until(lambda status: not status.problems)


async def test_the_status_shows_that_proxies_do_not_have_the_latest_change_yet():
    """For example, when the last pod becomes ready: a caller's proxy does not have the endpoint yet."""
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        await rig.until(lambda status: status.is_told)
        pod = rig.pod("web-0")
        pod._on_answer(ready=False, why="it says nothing")
        assert not rig.engine.status().is_told
        await rig.until(lambda status: status.is_told)


async def test_an_app_without_a_proxy_is_served_and_called_all_the_same():
    unmeshed = web().replace(
        "labels: {app: web}", 'labels: {app: web}, annotations: {sidecar.istio.io/inject: "false"}'
    )
    async with mesh(SERVICE, unmeshed, CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        status, body = await rig.fetch("caller", rig.address())
        assert (status, body) == (200, f"v1 {rig.pod('caller').plan.addresses.texts[0]} web-0")
        assert pods(rig.engine.status())[1].sync == "-"


@pytest.mark.parametrize("setting", ["excludeInboundPorts: [8080]", "includeInboundPorts: [9090]"])
async def test_an_http_port_excluded_from_interception_is_called_in_plaintext(setting):
    async with mesh(SERVICE, web(extra=setting), CALLER) as rig:
        await rig.until_ready("web-0", "caller-0")
        status, body = await rig.fetch("caller-0", rig.address())
        assert (status, body.split()[0]) == (200, "v1")
        assert body.split()[1] == str(rig.pod("caller-0").plan.addresses.ipv4), "it met no proxy on its way in"


async def test_a_server_first_protocol_on_an_undeclared_port_is_a_warning():
    server = "import socket; s = socket.create_server(('', 9000)); [s.accept()[0].sendall(b'hello') for _ in range(9)]"
    files = f"""
apiVersion: v1
kind: Service
metadata: {{name: greeter, namespace: shop}}
spec: {{selector: {{app: greeter}}, ports: [{{port: 9000}}]}}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {{name: greeter, namespace: shop}}
spec: {{command: [python3, -c, "{server}"], ports: [{{port: 9000}}]}}
"""
    async with mesh(files, CALLER) as rig:
        await rig.until_ready("caller-0", "greeter-0")
        connection = namespace.socket_in(rig.pod("caller").namespace)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            await loop.sock_connect(connection, (rig.address("greeter"), 9000))
            assert await loop.sock_recv(connection, 100) == b"hello"
        connection.close()
        await rig.engine.observer.scrape()
        warnings = [str(problem) for problem in rig.engine.problems()]
        assert any("Workload shop/caller" in each and ":9000" in each and "appProtocol" in each for each in warnings)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_an_access_log_on_a_standard_stream_is_in_the_proxys_log(stream):
    async with mesh(SERVICE, web(), CALLER, settings(f"accessLogFile: /dev/{stream}")) as rig:
        await rig.until_ready("caller-0", "web-0")
        assert (await rig.fetch("caller", rig.address(), path="/seen-in-the-log"))[0] == 200
        for pod in ("caller", "web"):
            await rig.until(lambda _, pod=pod: any("/seen-in-the-log" in x for x in rig.pod(pod).log.proxy.tail()))
        # Envoy's warnings about deprecated fields must not be in the log.
        assert not [line for line in rig.pod("web").log.proxy.tail() if "eprecated" in line]


async def test_a_telemetry_enables_the_access_log_at_runtime_only_for_its_workloads():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        (rig.directory / "log.yaml").write_text(CALLED)

        async def logged():
            assert (await rig.fetch("caller", rig.address(), path="/in-the-log"))[0] == 200
            return [line for line in rig.pod("web").log.proxy.tail() if "/in-the-log" in line]

        await eventually(logged)
        assert not [line for line in rig.pod("caller").log.proxy.tail() if "/in-the-log" in line]
        assert 'downstream_peer="' in (await logged())[0]


CALLED = """
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: called, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  accessLogging:
  - match: {mode: SERVER}
    providers: [{name: envoy}]
"""


async def test_the_machines_own_network_stays_untouched():
    before = host.network()
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        assert host.network() == before
    assert host.network() == before


async def test_two_meshes_run_side_by_side_and_do_not_see_each_other():
    async with mesh(SERVICE, web("one"), CALLER) as first, mesh(SERVICE, web("two"), CALLER) as second:
        await first.until_ready("caller-0", "web-0")
        await second.until_ready("caller-0", "web-0")
        assert first.address() == second.address()
        assert (await first.fetch("caller", first.address()))[1].startswith("one")
        assert (await second.fetch("caller", second.address()))[1].startswith("two")
        foreign = next(pod.pid for pod in pods(second.engine.status()) if pod.name == "web-0")
        for caller in ("caller-0", "web-0"):
            assert "not permitted" in await first.run_in(caller, "sh", "-c", f"kill -0 {foreign}")


async def test_a_name_that_is_taken_is_refused_and_the_owner_is_not_touched(tmp_path):
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        second = Engine(tmp_path, name=rig.engine.name)
        with pytest.raises(LocalError, match=f"running already.*weft down {rig.engine.name}"):
            await second.start()
        await second.stop()
        await rig.until_ready("web-0")


async def test_a_start_that_fails_leaves_nothing(tmp_path, monkeypatch):
    gone = Engine(tmp_path / "nowhere", name=unique())
    with pytest.raises(LocalError, match="nowhere"):
        await gone.start()
    assert traces(gone.name) == []
    monkeypatch.setenv("WEFT_ENVOY", "/no/such/envoy")
    without_envoy = Engine(tmp_path, name=unique())
    with pytest.raises(LocalError, match="not an executable file"):
        await without_envoy.start()
    assert traces(without_envoy.name) == []


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.3])
async def test_a_start_that_is_interrupted_leaves_nothing(after):
    async with mesh(SERVICE, web(replicas=3), CALLER):
        await asyncio.sleep(after)


async def test_stopping_while_it_starts_leaves_nothing(tmp_path):
    engine = Engine(tmp_path, name=unique())
    starting = asyncio.ensure_future(engine.start())
    await eventually(lambda: traces(engine.name), every=0)
    await engine.stop()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert traces(engine.name) == []


ENGINE = """
import asyncio, sys
from pathlib import Path
from weft.local.engine import Engine

async def run():
    engine = Engine(Path(sys.argv[1]), name=sys.argv[2])
    await engine.start()
    await engine.ending.wait()

asyncio.run(run())
"""


@pytest.mark.parametrize("by", ["down", "up"])
def test_what_a_mesh_killed_with_9_left_is_cleaned_up(tmp_path, by):
    name = unique()
    tmp_path.chmod(0o755)
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "mesh.yaml").write_text(f"{SERVICE}---{web(replicas=2)}")
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(tmp_path), name])

    def processes() -> set[int]:
        own = [each for each in namespace.namespaces() if each.name.startswith(namespace_prefix(name))]
        return {pid for each in own for pid in namespace.processes_in(each)}

    try:
        inside = eventually_blocking(processes, lambda pids: len(pids) >= 4, limit=90)
    finally:
        os.kill(engine.pid, signal.SIGKILL)  # it must not outlive a test that fails
        engine.wait()
    assert traces(name)
    if by == "down":
        assert clean(name)
    else:
        acquire(name, "/shop").release()
    assert traces(name) == []
    assert all(has_ended(pid) for pid in inside)
    assert Path("/etc/resolv.conf").exists()


async def test_the_domain_of_the_mesh_decides_which_copy_of_an_object_is_valid():
    route = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [%s], http: [{route: [{destination: {host: web}}]}]}
"""
    # In this domain the first copy contains a host twice, and is rejected.
    async with mesh(route % "web, web.shop.svc.mesh.example", route % "web", domain="mesh.example") as rig:
        (taken,) = rig.engine.control.mesh.get(ObjectKey("VirtualService", "shop", "web"))
        assert taken.hosts == ("web.shop.svc.mesh.example",)


async def test_an_unexpected_failure_of_the_start_is_the_meshs_failure(tmp_path, monkeypatch):
    async def fail(self):
        raise RuntimeError("broken")

    monkeypatch.setattr("weft.local.egress.Egress.start", fail)
    engine = Engine(tmp_path, name=unique(), egress=True)
    with pytest.raises(RuntimeError):
        await engine.start()
    # A runner that sees `ending` before the start has ended looks here.
    assert "cannot start: RuntimeError('broken')" in str(engine.failure)
