"""The webhooks, with settings from a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import aiohttp
import pytest

from cluster.kubernetes import unique
from eventually import eventually
from weft.base.metrics_page import MetricsPage
from weft.ca.authority import Authority
from weft.ca.serving import ServingCertificate
from weft.cluster.injection import Injection
from weft.inject.settings import SettingsError
from weft.install.names import InstallationNames

SERVICE = "istiod.istio-system.svc"


@pytest.fixture
def names(api_server):
    return InstallationNames("default", api_server.make_namespace(unique("injection")))


@contextlib.asynccontextmanager
async def opened(client, names, authority):
    injection = Injection(client, names, "cluster.local")
    port = await injection.open("127.0.0.1", 0, ServingCertificate(authority))
    running = asyncio.create_task(injection.run())
    try:
        yield injection, port
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await injection.close()


async def put(client, names, values):
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.injector, "namespace": names.namespace},
        "data": {"settings": values, "values": '{"global": {}}'},
    }
    await client.apply(manifest, manager="test", force=True)


async def images(port, authority):
    """Return the images of the containers of an injected pod."""
    context = ssl.create_default_context(cadata="".join(authority.bundle()))
    pod = {
        "metadata": {"name": "web", "labels": {"sidecar.istio.io/inject": "true"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "shop",
            "object": pod,
        },
    }
    url = f"https://127.0.0.1:{port}/inject"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=review, ssl=context, server_hostname=SERVICE) as answer,
    ):
        return (await answer.json())["response"]


async def test_pods_are_injected_by_the_config_map_and_its_changes(client, names):
    authority = Authority.in_memory("cluster.local")
    await put(client, names, '{"image": "weft:one"}')
    async with opened(client, names, authority) as (injection, port):
        assert (await images(port, authority))["allowed"]
        assert injection.lack() == ""
        assert injection._server.injector.settings.image == "weft:one"
        assert injection._server.injector.native_sidecars
        await put(client, names, '{"image": "weft:two"}')
        await eventually(lambda: injection._server.injector.settings.image == "weft:two")
        await put(client, names, '{"imago": "weft:three"}')
        await put(client, names, '{"image": "weft:four"}')
        await eventually(lambda: injection._server.injector.settings.image == "weft:four")
        assert "sidecar_injection_requests_total 1" in MetricsPage(injection.metrics).text()


async def test_invalid_settings_are_an_error_at_the_start(client, names):
    await put(client, names, '{"imago": "weft:one"}')
    with pytest.raises(SettingsError, match="imago"):
        async with opened(client, names, Authority.in_memory("cluster.local")):
            pass


async def test_the_api_server_is_shown_a_certificate_of_each_root_that_signs(client, names):
    authority = Authority.in_memory("cluster.local")
    async with opened(client, names, authority) as (_, port):
        assert (await images(port, authority))["allowed"]
        authority.rotate()
        authority.switch()
        only_the_new_one = Authority.in_memory("cluster.local")
        only_the_new_one.bundle = lambda: authority.bundle()[:1]
        reviewed = await eventually(lambda: images(port, only_the_new_one), retry=aiohttp.ClientError)
        assert reviewed["allowed"]


async def test_without_a_config_map_the_defaults_hold(client, names):
    authority = Authority.in_memory("cluster.local")
    injection = Injection(client, names, "cluster.local")
    assert injection.lack() == "the webhooks are not served yet"
    async with opened(client, names, authority) as (injection, port):
        assert (await images(port, authority))["allowed"]
        assert injection._server.injector.settings.root_namespace == names.namespace
