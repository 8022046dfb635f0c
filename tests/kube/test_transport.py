import asyncio
import logging
import os
import signal
from urllib.parse import urlsplit

import pytest
from tools.kube.api_server import started
from tools.ports import free_port

from kube.following import connected, put
from kube.wire import wire
from weft.kube import transport
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.kube.error import ApiError, ApiUnavailable, KubeError
from weft.kube.resource import CONFIG_MAPS, NAMESPACES, PODS


async def test_a_wrong_token_is_rejected_and_not_logged(api_server, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = ApiConnection(server=api_server.server, ca_file=str(api_server.ca), token="very-s3cret-token")
    async with Client(wrong) as nobody:
        with pytest.raises(ApiError) as refused:
            await nobody.list(PODS, dict)
    assert refused.value.status == 401
    assert "s3cret" not in caplog.text + str(refused.value) + repr(refused.value)


async def test_a_server_with_an_untrusted_certificate_is_rejected(api_server, tmp_path):
    async with connected(api_server, server_name="somebody.else") as client:
        with pytest.raises(ApiUnavailable, match=r"certificate is not trusted.*tls-server-name"):
            await client.raw("GET", "/version")
    async with connected(api_server, ca_data="", ca_file="") as client:
        with pytest.raises(ApiUnavailable, match="certificate is not trusted"):
            await client.raw("GET", "/version")


async def test_insecure_skip_tls_verify_logs_a_warning(api_server, caplog):
    async with connected(api_server, ca_data="", ca_file="", insecure=True) as client:
        assert b"gitVersion" in await client.raw("GET", "/version")
    assert "insecure-skip-tls-verify" in caplog.text


async def test_tls_server_name_overrides_the_host(api_server):
    async with connected(api_server, server_name="kubernetes.default.svc") as client:
        assert b"gitVersion" in await client.raw("GET", "/version")


async def test_an_unreachable_server_is_unavailable():
    async with Client(ApiConnection(server=f"http://127.0.0.1:{free_port()}", source="a test")) as client:
        with pytest.raises(ApiUnavailable, match=r"does not answer.*check that it is up.*a test") as away:
            await client.get(NAMESPACES, "default")
    assert away.value.retryable


async def test_a_request_to_a_silent_server_times_out(api_server):
    address = urlsplit(api_server.server)
    async with (
        wire(address.hostname, address.port) as line,
        connected(api_server, server=f"https://127.0.0.1:{line.port}") as client,
    ):
        assert await client.raw("GET", "/version")
        line.stall()
        with pytest.raises(ApiUnavailable, match=r"no answer within 0\.5 s"):
            await client.raw("GET", "/version", timeout=0.5)
        line.flow()
        assert await client.raw("GET", "/version")


async def test_a_connection_is_reused_and_a_broken_one_replaced(api_server):
    address = urlsplit(api_server.server)
    async with (
        wire(address.hostname, address.port) as line,
        connected(api_server, server=f"https://127.0.0.1:{line.port}") as client,
    ):
        for _ in range(5):
            await client.raw("GET", "/version")
        assert line.opened == 1
        line.cut()
        await client.raw("GET", "/version")
        assert line.opened == 2


async def test_a_burst_of_requests_does_not_use_all_sockets(api_server, monkeypatch):
    monkeypatch.setattr(transport, "_MOST_AT_ONCE", 3)
    address = urlsplit(api_server.server)
    async with (
        wire(address.hostname, address.port) as line,
        connected(api_server, server=f"https://127.0.0.1:{line.port}") as client,
    ):
        await asyncio.gather(*(client.raw("GET", "/version") for _ in range(20)))
        assert line.opened <= 3


async def test_a_response_over_the_maximum_size_raises(client, monkeypatch, namespace):
    await put(client, namespace, "large", text="x" * 100_000)
    monkeypatch.setattr(transport, "_LONGEST_ANSWER", 50_000)
    with pytest.raises(ApiUnavailable, match="a response of over"):
        await client.get(CONFIG_MAPS, "large", namespace=namespace)


async def test_a_request_on_a_closed_client_raises(api_server):
    async with connected(api_server) as client:
        await client.raw("GET", "/version")
    with pytest.raises(KubeError, match="closed"):
        await client.raw("GET", "/version")


@pytest.mark.kube
async def test_a_stopped_server_is_unavailable_and_works_again_after_a_restart(tmp_path):
    with started(tmp_path) as server:
        async with connected(server) as client:
            assert await client.raw("GET", "/version")
            os.kill(server.api.pid(), signal.SIGSTOP)
            try:
                with pytest.raises(ApiUnavailable, match="no answer within"):
                    await client.raw("GET", "/version", timeout=1)
            finally:
                os.kill(server.api.pid(), signal.SIGCONT)
            assert await client.raw("GET", "/version")
            await asyncio.to_thread(server.api.stop, kill=True)
            with pytest.raises(ApiUnavailable, match="does not answer"):
                await client.raw("GET", "/version")
            await asyncio.to_thread(server.start_api)
            assert await client.raw("GET", "/version")
