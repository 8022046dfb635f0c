import asyncio
import os
import signal
import time

import jwt
import msgspec
import pytest
from tools.kube.api_server import started
from tools.ports import free_port

from kube.following import connected
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.kube.resource import PODS, SERVICE_ACCOUNTS
from weft.kube.token_review import Reason, Reviewed, ReviewRefused, ReviewUnavailable, _identity, _Status, review


async def make_pod(client, namespace, name="web-0"):
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": "node-a", "containers": [{"name": "app", "image": "app"}]},
    }
    return await client.create(PODS, manifest, namespace=namespace)


async def token_for(client, namespace, pod=None, audience="istio-ca"):
    bound = {}
    if pod is not None:
        metadata = pod["metadata"]
        bound = {
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        }
    spec = {"audiences": [audience] if audience else [], "expirationSeconds": 3600, **bound}
    made = await client.create(
        SERVICE_ACCOUNTS, {"spec": spec}, namespace=namespace, name="default", subresource="token"
    )
    return made["status"]["token"]


async def refusal(client, token, audiences=("istio-ca",)):
    with pytest.raises(ReviewRefused) as refused:
        await review(client, token, audiences)
    return refused.value


async def test_the_review_of_a_pods_token_returns_the_pods_identity(client, namespace):
    pod = await make_pod(client, namespace)
    found = await review(client, await token_for(client, namespace, pod), ["istio-ca", "another"])
    assert found == Reviewed(
        username=f"system:serviceaccount:{namespace}:default",
        namespace=namespace,
        service_account="default",
        pod="web-0",
        pod_uid=pod["metadata"]["uid"],
        node="node-a",
        audiences=("istio-ca",),
    )


async def test_a_token_for_another_audience_is_rejected(client, namespace):
    pod = await make_pod(client, namespace)
    refused = await refusal(client, await token_for(client, namespace, pod, audience="vault"))
    assert refused.reason is Reason.WRONG_AUDIENCE
    assert "vault" in refused.detail
    assert (await refusal(client, await token_for(client, namespace, pod, audience=""))).reason is Reason.WRONG_AUDIENCE


async def test_a_token_that_is_bound_to_no_pod_is_rejected(client, namespace):
    assert (await refusal(client, await token_for(client, namespace))).reason is Reason.NOT_POD_BOUND


async def test_the_token_of_a_deleted_pod_is_rejected(client, namespace):
    pod = await make_pod(client, namespace)
    token = await token_for(client, namespace, pod)
    await client.raw("DELETE", PODS.path(namespace, "web-0"), query={"gracePeriodSeconds": "0"})
    assert (await refusal(client, token)).reason is Reason.NOT_AUTHENTICATED


async def test_the_token_of_an_earlier_pod_of_that_name_is_rejected(client, namespace):
    pod = await make_pod(client, namespace)
    token = await token_for(client, namespace, pod)
    await client.raw("DELETE", PODS.path(namespace, "web-0"), query={"gracePeriodSeconds": "0"})
    await make_pod(client, namespace)
    assert (await refusal(client, token)).reason is Reason.NOT_AUTHENTICATED


async def test_an_expired_token_and_a_foreign_signature_are_rejected(client, api_server, namespace):
    pod = await make_pod(client, namespace)
    token = await token_for(client, namespace, pod)
    claims = jwt.decode(token, options={"verify_signature": False})
    header = {"kid": jwt.get_unverified_header(token)["kid"]}
    key = (api_server.keys / "service-account.key").read_text()
    assert await review(client, jwt.encode(claims, key, "RS256", header), ["istio-ca"]), (
        "so the next one is only too old"
    )
    claims |= {"iat": int(time.time()) - 7200, "nbf": int(time.time()) - 7200, "exp": int(time.time()) - 3600}
    expired = await refusal(client, jwt.encode(claims, key, "RS256", header))
    assert expired.reason is Reason.NOT_AUTHENTICATED
    assert "expired" in expired.detail
    other = (api_server.keys / "admin.key").read_text()
    claims |= {"exp": int(time.time()) + 3600}
    algorithm = "ES256" if "EC PRIVATE" in other or len(other) < 600 else "RS256"
    assert (await refusal(client, jwt.encode(claims, other, algorithm, header))).reason is Reason.NOT_AUTHENTICATED


@pytest.mark.parametrize("token", ["", " ", "a b", "x" * 20_000, "tökén", "a\nb", "\x00"])
async def test_text_that_is_not_a_token_is_not_sent_to_the_api_server(token):
    async with Client(ApiConnection(server=f"http://127.0.0.1:{free_port()}")) as nowhere:
        assert (await refusal(nowhere, token)).reason is Reason.NOT_AUTHENTICATED


async def test_random_text_as_a_token_is_rejected(client):
    assert (await refusal(client, "rubbish")).reason is Reason.NOT_AUTHENTICATED
    assert (await refusal(client, "a.b.c")).reason is Reason.NOT_AUTHENTICATED


async def test_a_person_is_not_a_service_account(client, api_server):
    """Known by a token of the server's own file, which knows no audience but the API's."""
    api = "https://kubernetes.default.svc.cluster.local"
    refused = await refusal(client, api_server.token, [api])
    assert refused.reason is Reason.NOT_A_SERVICE_ACCOUNT
    assert "token-admin" in str(refused)
    assert (await refusal(client, api_server.token)).reason is not Reason.NOT_A_SERVICE_ACCOUNT


async def test_a_forbidden_review_is_unavailable_and_not_a_rejection(client, api_server, namespace):
    pod = await make_pod(client, namespace)
    token = await token_for(client, namespace, pod)
    ours = ApiConnection(
        server=api_server.server, ca_file=str(api_server.ca), token=await token_for(client, namespace, audience="")
    )
    async with Client(ours) as nobody:
        with pytest.raises(ReviewUnavailable, match="403") as away:
            await review(nobody, token, ["istio-ca"])
    assert token not in str(away.value)


@pytest.mark.kube
async def test_an_unreachable_server_is_unavailable_and_not_a_rejection(tmp_path):
    with started(tmp_path) as server:
        async with connected(server) as client:
            pod = await make_pod(client, "default")
            token = await token_for(client, "default", pod)
            os.kill(server.api.pid(), signal.SIGSTOP)
            try:
                with pytest.raises(ReviewUnavailable, match="no answer within 1 s"):
                    await review(client, token, ["istio-ca"], timeout=1)
            finally:
                os.kill(server.api.pid(), signal.SIGCONT)
            await asyncio.to_thread(server.api.stop, kill=True)
            with pytest.raises(ReviewUnavailable, match="does not answer"):
                await review(client, token, ["istio-ca"])


def answer(**changes):
    extra = {f"authentication.kubernetes.io/{key}": [key] for key in ("pod-name", "pod-uid", "node-name")}
    good = {
        "authenticated": True,
        "audiences": ["istio-ca"],
        "user": {"username": "system:serviceaccount:shop:web", "extra": extra | changes.pop("extra", {})},
    }
    good["user"] |= {"username": changes.pop("username")} if "username" in changes else {}
    return msgspec.convert(good | changes, _Status)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"authenticated": False}, Reason.NOT_AUTHENTICATED),
        ({"audiences": None}, Reason.WRONG_AUDIENCE),
        ({"audiences": ["another"]}, Reason.WRONG_AUDIENCE),
        ({"username": "system:serviceaccount:shop"}, Reason.NOT_A_SERVICE_ACCOUNT),
        ({"username": "system:serviceaccount:shop:web:more"}, Reason.NOT_A_SERVICE_ACCOUNT),
        ({"username": "system:serviceaccount::web"}, Reason.NOT_A_SERVICE_ACCOUNT),
        ({"username": "system:serviceaccount:shop:../x"}, Reason.NOT_A_SERVICE_ACCOUNT),
        ({"username": "xsystem:serviceaccount:shop:web"}, Reason.NOT_A_SERVICE_ACCOUNT),
        ({"extra": {"authentication.kubernetes.io/pod-name": []}}, Reason.NOT_POD_BOUND),
        ({"extra": {"authentication.kubernetes.io/pod-name": ["a", "b"]}}, Reason.NOT_POD_BOUND),
        ({"extra": {"authentication.kubernetes.io/pod-uid": None}}, Reason.NOT_POD_BOUND),
    ],
)
def test_the_review_response_is_read_strictly(changes, reason):
    with pytest.raises(ReviewRefused) as refused:
        _identity(answer(**changes), ["istio-ca"])
    assert refused.value.reason is reason


def test_the_node_is_empty_if_an_older_server_returns_none():
    assert _identity(answer(extra={"authentication.kubernetes.io/node-name": []}), ["istio-ca"]).node == ""


async def test_an_audience_is_needed(client):
    with pytest.raises(ValueError, match="audience"):
        await review(client, "a.b.c", [])
