import asyncio
import base64
import datetime
import json
import ssl
from ipaddress import ip_address

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventually import eventually
from inject.pods import apply, names, pod
from weft.base.metrics_page import MetricsPage
from weft.cluster.sidecar_arguments import arguments
from weft.inject import server as asking
from weft.inject.injector import Injector
from weft.inject.review import AdmissionRequest, ReviewedKind
from weft.inject.server import MOST_BYTES, WebhookServer
from weft.inject.settings import InjectionSettings

LOOPBACK = ip_address("127.0.0.1")


def certificate(name="istiod.istio-system.svc"):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(LOOPBACK)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return made.public_bytes(encoding), key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture
async def server():
    made = WebhookServer(Injector(InjectionSettings(), arguments, native_sidecars=True))
    made.chain, made.key = certificate()
    made.use_certificate(made.chain, made.key)
    await made.start("127.0.0.1", 0)
    yield made
    await made.stop()


def trusting(chain):
    context = ssl.create_default_context(cadata=chain.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def post(server, path, body, *, chain=None, content_type="application/json"):
    """Send a request as the API server does: to the service's name, trusting only the bundle."""
    url = f"https://127.0.0.1:{server.port}{path}"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        session.post(
            url,
            data=body,
            headers={"Content-Type": content_type},
            ssl=trusting(chain or server.chain),
            server_hostname="istiod.istio-system.svc",
        ) as answer,
    ):
        return answer.status, await answer.read()


def review(body, kind="Pod", group="", version="v1", **request):
    asked = {
        "uid": "u1",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": "CREATE",
        "namespace": "shop",
    }
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {**asked, "object": body, **request},
        }
    ).encode()


async def test_a_pod_is_injected_over_tls(server):
    status, body = await post(server, "/inject", review(pod()))
    response = json.loads(body)["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "u1", True)
    result = apply(pod(), json.loads(base64.b64decode(response["patch"])))
    assert names(result, "initContainers") == ["istio-init", "istio-proxy"]


async def test_a_wrong_object_is_refused(server):
    body = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "x"},
        "spec": {"hosts": 1},
    }
    asked = review(body, "VirtualService", "networking.istio.io", "v1")
    response = json.loads((await post(server, "/validate", asked))[1])["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert "VirtualService shop/x: spec.hosts" in response["status"]["message"]


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_an_invalid_review_gets_the_reason_and_the_server_keeps_running(server, path):
    for body, words in (
        (b"", b"not an AdmissionReview"),
        (b"{}", b"apiVersion"),
        (b'{"apiVersion": 1}', b"not an AdmissionReview"),
    ):
        status, said = await post(server, path, body)
        assert status == 400
        assert words in said
    assert (await post(server, path, review(pod()), content_type="text/plain"))[0] == 415
    assert (await post(server, path, b"x" * (MOST_BYTES + 1)))[0] == 413
    assert (await post(server, path, review(pod())))[0] == 200


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["metadata", "spec", "containers", "initContainers", "name", "labels", "annotations", "env", "ports",
                     "readinessProbe", "httpGet", "lifecycle", "volumes", "securityContext", "ownerReferences"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=15,
    )
)  # fmt: skip
def test_every_pod_however_malformed_is_allowed_or_rejected(strange):
    injector = Injector(InjectionSettings(), arguments, native_sidecars=True)
    containers = [{"name": "a", **strange}] if isinstance(strange, dict) and "name" not in strange else [{"name": "a"}]
    for body in (strange, {"metadata": strange, "spec": {"containers": containers}}, {"metadata": {}, "spec": strange}):
        if isinstance(body, dict):
            answer = injector.answer(AdmissionRequest("1", ReviewedKind("", "v1", "Pod"), "CREATE", "", "shop", body))
            assert answer.allowed or answer.message


async def test_an_internal_error_is_a_denial_with_the_error(server, caplog):
    def broken(_):
        raise ZeroDivisionError("of course")

    server.injector._render = broken
    status, body = await post(server, "/inject", review(pod()))
    response = json.loads(body)["response"]
    assert (status, response["allowed"]) == (200, False)
    assert "internal error of weft for this Pod: ZeroDivisionError: of course" in response["status"]["message"]
    assert response["status"]["code"] == 500
    assert "Traceback" in caplog.text


async def test_the_certificate_is_replaced_while_it_runs(server):
    chain, key = certificate()
    with pytest.raises(aiohttp.ClientError):
        await post(server, "/inject", review(pod()), chain=chain)
    server.use_certificate(chain, key)
    assert (await post(server, "/inject", review(pod()), chain=chain))[0] == 200
    with pytest.raises(aiohttp.ClientError):
        await post(server, "/inject", review(pod()), chain=server.chain)


async def test_a_certificate_that_does_not_fit_its_key_changes_nothing(server):
    with pytest.raises(ssl.SSLError):
        server.use_certificate(certificate()[0], server.key)
    with pytest.raises(ssl.SSLError):
        server.use_certificate(b"", b"")
    assert (await post(server, "/inject", review(pod())))[0] == 200


async def test_readiness(server):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{server.port}/ready", ssl=False) as answer:
            assert (answer.status, await answer.text()) == (200, "ready\n")
        async with session.get(f"https://127.0.0.1:{server.port}/other", ssl=False) as answer:
            assert answer.status == 404


async def test_without_a_certificate_no_client_can_connect():
    made = WebhookServer(Injector(InjectionSettings(), arguments, native_sidecars=True))
    await made.start("127.0.0.1", 0)
    try:
        with pytest.raises(aiohttp.ClientError):
            await post(made, "/inject", review(pod()), chain=certificate()[0])
    finally:
        await made.stop()


async def test_what_happened_is_counted_under_istios_names(server):
    await post(server, "/inject", review(pod()))
    await post(server, "/inject", review(pod(hostNetwork=True)))
    await post(server, "/inject", review(pod(annotations={"sidecar.istio.io/logLevel": "x"})))
    await post(server, "/inject", b"x")
    await post(server, "/validate", b"x")
    lines = MetricsPage(server.metrics).text().splitlines()
    assert "sidecar_injection_requests_total 4.0" in lines
    assert "sidecar_injection_success_total 1.0" in lines
    assert "sidecar_injection_skip_total 1.0" in lines
    assert "sidecar_injection_failure_total 2.0" in lines
    assert "galley_validation_failed 1.0" in lines
    assert "sidecar_injection_time_seconds_count 4.0" in lines


async def test_many_concurrent_reviews_all_get_a_response(server):
    answers = await asyncio.gather(*(post(server, "/inject", review(pod(), uid=str(number))) for number in range(50)))
    assert {json.loads(body)["response"]["uid"] for _, body in answers} == {str(number) for number in range(50)}


async def test_a_client_that_stops_sending_gets_a_timeout(server, monkeypatch):
    monkeypatch.setattr(asking, "READ_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=trusting(server.chain), server_hostname="istiod.istio-system.svc"
    )
    writer.write(b"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    async with asyncio.timeout(30):
        assert b" 408 " in await reader.readline()
    writer.close()


async def test_few_large_reviews_are_read_at_once_and_small_ones_wait_for_none_of_them(server, monkeypatch):
    """Otherwise any client could fill the memory with unchecked requests."""
    monkeypatch.setattr(asking, "LARGE_AT_ONCE", 1)
    server._places = asyncio.Semaphore(1)
    tls = trusting(server.chain)

    async def begin(length):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=tls, server_hostname="istiod.istio-system.svc"
        )
        head = f"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        writer.write(head.encode() + b"{")
        return reader, writer

    _, first = await begin(asking.SMALL_BYTES + 1)
    async with asyncio.timeout(30):
        await eventually(server._places.locked)
        waiting, second = await begin(asking.SMALL_BYTES + 1)
        assert (await post(server, "/inject", b"{}"))[0] == 400
        second.write(b" " * asking.SMALL_BYTES)
        assert server._places.locked()
        first.close()
        assert b"400" in await waiting.readline()
        second.close()
