import asyncio
import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from eventually import eventually
from weft.envoy import binary
from weft.envoy.admin import Admin
from weft.envoy.binary import EnvoyError
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Tcp, Unix, node_document, render
from weft.netns import namespace as netns

pytestmark = pytest.mark.root

NODE = BootstrapNode(
    name="web-0", namespace="shop", workload="web", addresses=("10.97.1.1", "fd97::101"), containers=("web",)
)


async def get(namespace, port, path, host="127.0.0.1"):
    async with Admin(lambda: netns.socket_in(namespace), port=port) as client:
        client._base = f"http://{host}:{port}"
        status, body = await client._ask("GET", path, {})
        return status, body.decode()


def test_a_node_has_istios_name_and_metadata():
    document = node_document(NODE)
    assert document["id"] == "sidecar~10.97.1.1~web-0.shop~shop.svc.cluster.local"
    assert document["cluster"] == "web.shop"
    assert document["metadata"] == {
        "NAME": "web-0",
        "NAMESPACE": "shop",
        "WORKLOAD_NAME": "web",
        "SERVICE_ACCOUNT": "default",
        "CLUSTER_ID": "Kubernetes",
        "MESH_ID": "cluster.local",
        "INSTANCE_IPS": "10.97.1.1,fd97::101",
        "APP_CONTAINERS": "web",
        "INTERCEPTION_MODE": "REDIRECT",
        "ISTIO_VERSION": "1.30.3",
    }


def test_a_node_has_a_locality_if_it_is_known():
    there = BootstrapNode(name="a", namespace="b", addresses=("1.1.1.1",), locality="eu/eu-a")
    assert node_document(there)["locality"] == {"region": "eu", "zone": "eu-a"}
    assert "locality" not in node_document(NODE)


def test_names_are_resolved_by_the_configured_resolvers():
    document = json.loads(render(Bootstrap(node=NODE, xds=Unix("/x"), resolvers=(Tcp("10.244.0.1", 5353),))))
    config = document["typed_dns_resolver_config"]["typed_config"]
    assert config["resolvers"] == [{"socket_address": {"address": "10.244.0.1", "port_value": 5353}}]


def test_further_metadata_wins():
    document = node_document(
        BootstrapNode(name="a", namespace="b", addresses=("1.1.1.1",), metadata={"CLUSTER_ID": "mine"})
    )
    assert document["metadata"]["CLUSTER_ID"] == "mine"


@pytest.mark.parametrize("xds", [Unix("/run/weft/xds.sock"), Tcp("127.0.0.1", 15010)])
@pytest.mark.parametrize("ipv6", [True, False])
def test_envoy_accepts_it_without_a_warning(tmp_path, xds, ipv6):
    file = tmp_path / "envoy.json"
    file.write_text(render(Bootstrap(node=NODE, xds=xds, ipv6=ipv6)))
    command = [binary.find(), "--mode", "validate", "--config-path", file, "--log-level", "warning"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_running_envoy_sends_its_node_to_the_control_plane_and_logs_no_warning(ready_envoy, control_plane):
    _, nodes = control_plane
    _, _, log = ready_envoy
    assert {node.id for node in nodes} == {"sidecar~10.97.1.1~web-0.shop~shop.svc.cluster.local"}
    assert nodes[0].metadata["LABELS"]["app"] == "web"
    # One stream, and the node on its first message only.
    assert len(nodes) == 1
    assert Path(log).read_text() == ""


async def test_readiness_and_metrics_and_nothing_else_are_served_on_both_families(
    start_envoy, control_plane, namespace
):
    path, _ = control_plane
    admin, _, _ = await start_envoy(path, ipv6=True)
    async with asyncio.timeout(20):
        await admin.wait_until_ready()
    for host in ("127.0.0.1", "[::1]"):
        family = socket.AF_INET6 if "[" in host else socket.AF_INET
        async with Admin(lambda family=family: netns.socket_in(namespace, family)) as client:
            client._base = f"http://{host}:15021"
            assert (await client._ask("GET", "/healthz/ready", {}))[0] == 200
            assert (await client._ask("GET", "/quitquitquit", {}))[0] == 404
            client._base = f"http://{host}:15090"
            status, metrics = await client._ask("GET", "/stats/prometheus", {})
            assert status == 200
            assert b'envoy_cluster_upstream_rq_total{cluster_name="xds-grpc"} 1' in metrics


async def test_is_not_ready_until_the_control_plane_has_sent_its_config(start_envoy, namespace, pod_directory):
    admin, _, _ = await start_envoy(str(pod_directory / "nobody.sock"))
    info = await eventually(admin.server_info, retry=EnvoyError)
    assert info["state"] in ("PRE_INITIALIZING", "INITIALIZING")
    assert await admin.ready() is False


async def test_counts_what_the_live_view_shows_and_little_else(ready_envoy, namespace):
    admin, _, _ = ready_envoy
    await get(namespace, 15021, "/healthz/ready")
    stats = await admin.stats(used_only=False)
    kept = {name for name in stats.values if name.startswith("cluster.own-admin.")}
    assert {
        "cluster.own-admin.upstream_rq_total",
        "cluster.own-admin.upstream_rq_2xx",
        "cluster.own-admin.upstream_rq_active",
        "cluster.own-admin.upstream_cx_active",
        "cluster.own-admin.upstream_cx_connect_fail",
        "cluster.own-admin.membership_healthy",
    } <= kept
    assert "listener.0.0.0.0_15021.downstream_pre_cx_timeout" in stats.values
    assert "listener.0.0.0.0_15021.downstream_cx_total" in stats.values
    assert "server.live" in stats.values
    assert not {name for name in kept if "lb_" in name or "update_" in name}


async def test_histograms_are_merged_on_every_scrape(ready_envoy, namespace):
    admin, _, _ = ready_envoy

    async def counted():
        body = await admin.read("/stats/prometheus", {"filter": r"^cluster\.own-admin\.upstream_rq_time"})
        found = re.search(rb"upstream_rq_time_count\S* (\d+)", body)
        return int(found[1]) if found else 0

    async def merged_twice():
        for _ in range(2):
            before = await counted()
            await get(namespace, 15021, "/healthz/ready")
            await eventually(counted, lambda value, before=before: value != before)

    for attempt in reversed(range(5)):  # a busy machine may be slow; one success is enough
        try:
            async with asyncio.timeout(4):  # without a request, Envoy merges only every five seconds
                await merged_twice()
            break
        except TimeoutError:
            assert attempt


def test_the_admin_api_listens_on_loopback_only():
    text = render(Bootstrap(node=NODE, xds=Unix("/run/xds.sock")))
    assert json.loads(text)["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 15000}


def test_secrets_have_a_cluster_of_their_own_only_where_there_is_a_socket():
    def clusters(**sds) -> dict:
        made = json.loads(render(Bootstrap(node=NODE, xds=Unix("/run/xds.sock"), **sds)))
        return {each["name"]: each for each in made["static_resources"]["clusters"]}

    assert "sds-grpc" not in clusters()
    made = clusters(sds=Unix("/run/sds/1/sds.sock"))["sds-grpc"]
    (endpoint,) = made["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"] == {"pipe": {"path": "/run/sds/1/sds.sock"}}
    assert "http2_protocol_options" in json.dumps(made)


async def test_an_overloaded_proxy_rejects_requests_and_still_serves_its_readiness_port(
    start_envoy, control_plane, namespace
):
    admin, _, _ = await start_envoy(control_plane[0], memory=1 << 20)
    async with asyncio.timeout(30):
        await admin.wait_until_ready()
        name = "overload.envoy.overload_actions.stop_accepting_requests.active"
        await eventually(lambda: admin.stats("overload", used_only=False), lambda value: value.values.get(name) == 1)
    assert (await get(namespace, 15021, "/healthz/ready"))[0] == 200
