"""h2spec, the conformance test of HTTP/2, against a gateway and both sides of sidecars. Every case that a bare Envoy
passes must pass there, too: what weft configures makes no proxy a worse server of HTTP/2."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
import pytest_asyncio

from e2e.objects import http_service, istio, text, workload
from eventually import eventually
from weft.envoy import binary
from weft.netns.namespace import socket_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

BARE = 9090
PLACES = ("gateway", "inbound", "outbound")
TRIES = 3  # a case that fails on a busy machine only must pass at one of these


def files(control):
    edge = {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "edge", "namespace": "shop", "labels": {"app": "edge", "istio": "ingress"}},
        "spec": {"gateway": {}},
    }
    servers = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}]
    to_app = {"hosts": ["*"], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": "app"}}]}]}
    no_proxy = {"sidecar.istio.io/inject": "false"}
    return {
        "app.yaml": text(workload("app", control=control, serve="http=8080"), http_service("app")),
        "caller.yaml": text(workload("caller", control=control)),
        "plain.yaml": text(workload("plain", control=control, serve="http=8080", annotations=no_proxy)),
        "edge.yaml": text(
            edge,
            istio("Gateway", "edge", {"selector": {"istio": "ingress"}, "servers": servers}),
            istio("VirtualService", "outside", to_app),
        ),
    }


def bare_envoy():
    """The config of an Envoy with defaults only, in front of the app in the same pod."""
    types = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bare",
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}],
        "route_config": {
            "virtual_hosts": [
                {"name": "app", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "app"}}]}
            ]
        },
    }

    def address(port):
        return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}

    endpoints = {"cluster_name": "app", "endpoints": [{"lb_endpoints": [{"endpoint": address(8080)}]}]}
    listener = {"filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}], **address(BARE)}
    return {"static_resources": {"listeners": [listener], "clusters": [{"name": "app", "load_assignment": endpoints}]}}


def inside(pod):
    return ("nsenter", f"--net={pod.namespace.path}")


def pod_of(mesh, workload):
    return next(each for each in mesh.engine.pods() if each.plan.workload.name == workload)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def results(whole_mesh, h2spec):
    """The results by place. All places are tested at the same time: h2spec mostly waits."""
    await whole_mesh.ready()
    pod = pod_of(whole_mesh, "plain")
    flags = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
    config = ("--config-yaml", json.dumps(bare_envoy()))
    process = await asyncio.create_subprocess_exec(*inside(pod), str(binary.find()), *config, *flags)
    try:
        await eventually(lambda: connects(pod, "127.0.0.1", BARE))
        runs = [asyncio.to_thread(runner(whole_mesh, h2spec, place)) for place in ("bare", *PLACES)]
        yield dict(zip(("bare", *PLACES), await asyncio.gather(*runs), strict=True))
    finally:
        process.kill()
        await process.wait()


def connects(pod, address, port):
    with socket_in(pod.namespace) as connection:
        connection.settimeout(5)
        return connection.connect_ex((address, port)) == 0


def runner(mesh, h2spec, place):
    """A function that runs h2spec against a place."""
    services = {service.name: service.addresses[0] for service in mesh.control.mesh.services() if service.addresses}
    address, port = {
        "bare": ("127.0.0.1", BARE),
        "gateway": (mesh.pod("edge").addresses[0], 80),
        "inbound": (mesh.pod("app").addresses[0], 8080),
        "outbound": (services["app"], 80),
    }[place]
    pod = pod_of(mesh, "caller" if place == "outbound" else "plain")
    return partial(h2spec.run, address, port, before=inside(pod))


@pytest.mark.parametrize("place", PLACES)
async def test_no_case_fails_that_a_bare_envoy_passes(mesh, h2spec, results, place):
    bare, run = results["bare"], runner(mesh, h2spec, place)
    assert len(bare) > 140 and bare.keys() == results[place].keys()
    assert sum(map(bool, bare.values())) < 20
    worse = {case: why for case, why in results[place].items() if why and not bare[case]}
    for _ in range(TRIES - 1):
        again = [await asyncio.to_thread(run, cases=[case.number]) for case in worse]
        assert all(len(result) == 1 for result in again)
        worse = {case: why for case, result in zip(worse, again, strict=True) for why in result.values() if why}
    assert worse == {}
