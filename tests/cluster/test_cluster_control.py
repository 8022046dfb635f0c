"""The whole control plane against a real API server; kubelet and agents are in tests/on_cluster."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from urllib.parse import urlsplit

import aiohttp
import grpc
import grpc.aio
import msgspec
import pytest
from cryptography import x509
from tests.inspect.debug.test_stream import Istioctl
from tools.ports import free_port

from ca import making
from cluster.kubernetes import unique
from cluster.test_tls_front import Proxy
from eventually import eventually
from kube import standard
from kube.wire import Wire
from weft.ca.certificates import certificate_pem
from weft.ca.client import CertificateClient
from weft.ca.signer import SigningRefused
from weft.cluster.cluster_control import ClusterControl, ClusterSettings
from weft.control.analysis import Analysis
from weft.install.crds import crds
from weft.kube.apply import apply
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.error import ApiUnavailable
from weft.kube.resource import CONFIG_MAPS, ENDPOINT_SLICES, PODS, SERVICE_ACCOUNTS, SERVICES
from weft.model.gateway_api import CONTROLLER
from weft.model.names import ObjectKey
from weft.xds.types import CLUSTER

SERVICE = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]},
}


@pytest.fixture
async def definitions(client):
    async for _ in apply(client, crds()):
        pass


@pytest.fixture
def root(api_server):
    return api_server.make_namespace(unique("root"))


class Replica:
    def __init__(self, client, root, name):
        self.ports = {}
        settings = ClusterSettings(
            namespace=root, replica=name, xds="127.0.0.1:0", secure="127.0.0.1:0",
            webhooks=("127.0.0.1", 0), monitoring=("127.0.0.1", 0), log_scopes=("127.0.0.1", 0),
        )  # fmt: skip
        self.control = ClusterControl(client, settings)

    async def get(self, path, token=""):
        url = f"http://127.0.0.1:{self.control.ports['monitoring']}{path}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            return answer.status, await answer.text()

    @property
    def is_ready(self):
        return bool(self.control.ports.get("secure")) and not self.control.lack()


@contextlib.asynccontextmanager
async def replica(client, root, name="one"):
    made = Replica(client, root, name)
    running = asyncio.create_task(made.control.run())
    try:
        await eventually(lambda: made.is_ready or running.done())
        if running.done():
            running.result()
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def pod_with_token(client, namespace, name="web-0"):
    spec = {"containers": [{"name": "app", "image": "none"}]}
    pod = await client.create(
        PODS, {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}, namespace=namespace
    )
    reference = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"]}
    request = {"spec": {"audiences": ["istio-ca"], "boundObjectRef": reference, "expirationSeconds": 600}}
    manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **request}
    made = await client.create(SERVICE_ACCOUNTS, manifest, namespace=namespace, name="default", subresource="token")
    return pod, made["status"]["token"]


def conditions(document):
    return (document.get("status") or {}).get("conditions") or []


async def test_a_pods_token_is_worth_a_certificate_of_its_account_and_anything_else_is_not(client, api_server, root):
    namespace = api_server.make_namespace(unique("shop"))
    _, token = await pod_with_token(client, namespace)
    async with replica(client, root) as made:
        control = made.control
        ca = CertificateClient(
            f"127.0.0.1:{control.ports['secure']}",
            "".join(control.authority.bundle()),
            server_name=f"istiod.{root}.svc",
        )
        try:
            issued = await ca.create(token, making.csr())
            names = making.load(issued.chain[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName)
            uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
            assert uris == [f"spiffe://cluster.local/ns/{namespace}/sa/default"]
            with pytest.raises(SigningRefused, match="not authenticated"):
                await ca.create("nonsense", making.csr())
            status, text = await made.get("/metrics")
            assert status == 200
            assert "weft_certificates_issued_total 1.0\n" in text
            assert 'weft_certificates_refused_total{reason="token-signature"} 1.0\n' in text
        finally:
            await ca.close()


async def test_what_the_api_server_has_is_what_the_mesh_is_and_its_judgement_is_written_back(
    client, api_server, root, definitions
):
    namespace = api_server.make_namespace(unique("shop"))
    await client.create(SERVICES, SERVICE, namespace=namespace)
    await pod_with_token(client, namespace)
    endpoints = {
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
    }
    await client.create(ENDPOINT_SLICES, endpoints, namespace=namespace)
    policy = {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "nowhere"}}},
    }
    await client.apply(policy, manager="test")
    resource = await client.find("security.istio.io/v1", "AuthorizationPolicy")
    async with replica(client, root) as made:
        mesh = made.control.plane.mesh
        host = f"web.{namespace}.svc.cluster.local"
        assert host in set(mesh.hosts())
        [found] = [each for each in mesh.services() if each.host == host]
        assert [each.address for each in mesh.endpoints(found, found.ports[0])] == ["10.1.2.3"]
        found = await eventually(
            lambda: client.get(resource, "web", namespace=namespace),
            lambda found: any("nowhere" in each["message"] for each in conditions(found)[:1]),
            every=0.1,
        )
        [condition] = conditions(found)
        assert (condition["type"], condition["observedGeneration"]) == ("Accepted", 1)


async def test_gateway_api_statuses_do_not_wait_for_the_analysis(client, api_server, root, definitions, monkeypatch):
    monkeypatch.setattr(Analysis, "pending", True)
    with standard.served(api_server):
        standard.put(api_server, "GatewayClass", "", "restless", {"controllerName": CONTROLLER})
        async with replica(client, root):

            def accepted():
                found = api_server.request("GET", standard.url("GatewayClass", "", "restless"))
                told = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", ())}
                return told.get("Accepted") == "True"

            await eventually(lambda: asyncio.to_thread(accepted), every=0.1)


async def test_problems_of_a_proxy_are_found_whichever_replica_it_uses(client, api_server, root, definitions):
    namespace = api_server.make_namespace(unique("shop"))
    await client.create(SERVICES, SERVICE, namespace=namespace)
    containers = [{"name": "app", "image": "none"}, {"name": "istio-proxy", "image": "none"}]
    pod = {"metadata": {"name": "web-0", "labels": {"app": "web"}}, "spec": {"containers": containers}}
    await client.create(PODS, pod, namespace=namespace)
    routes = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"hosts": ["web"], "http": [{"route": [{"destination": {"host": "web", "subset": "v9"}}]}]},
    }
    await client.apply(routes, manager="test")
    resource = await client.find("networking.istio.io/v1", "VirtualService")
    async with replica(client, root):
        await eventually(
            lambda: client.get(resource, "web", namespace=namespace),
            lambda found: any("v9" in each["message"] for each in conditions(found)),
            every=0.1,
        )


async def test_rejections_are_in_the_status_whichever_replica_the_proxy_uses(client, api_server, root, definitions):
    namespace = api_server.make_namespace(unique("shop"))
    await client.create(SERVICES, SERVICE, namespace=namespace)
    _, token = await pod_with_token(client, namespace)
    rule = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"host": "web", "subsets": [{"name": "v9", "labels": {"version": "v9"}}]},
    }
    await client.apply(rule, manager="test")
    resource = await client.find("networking.istio.io/v1", "DestinationRule")
    bad = f"outbound|80|v9|web.{namespace}.svc.cluster.local"

    async def accepted(expected):
        found = await eventually(
            lambda: client.get(resource, "web", namespace=namespace),
            lambda found: expected in {each["status"] for each in conditions(found)},
            every=0.1,
        )
        return {each["status"]: each["message"] for each in conditions(found)}[expected]

    async with replica(client, root, "one") as one, replica(client, root, "two") as two:
        await eventually(lambda: one.control._leader.leading)
        await accepted("True")
        roots = "".join(two.control.authority.bundle()).encode()
        target = f"127.0.0.1:{two.control.ports['secure']}"
        async with grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(roots)) as to:
            proxy = Proxy(to, token, namespace)
            await proxy.subscribe(CLUSTER)

            async def refuse():
                while True:
                    response = await proxy._call.read()
                    has_bad = bad in {each.name for each in response.resources}
                    await proxy.answer(response, error=f"{bad} is bad" if has_bad else "")

            refusing = asyncio.create_task(refuse())
            assert f"{bad} is bad" in await accepted("False")
            refusing.cancel()
            rule["spec"]["subsets"] = []
            await client.apply(rule, manager="test")
            await accepted("True")


async def published_in(client, namespace):
    found = await client.list(CONFIG_MAPS, dict, namespace=namespace, fields="metadata.name=istio-ca-root-cert")
    return "".join(each["data"]["root-cert.pem"] for each in found.items)


async def test_a_defect_in_writing_status_does_not_stop_the_control_plane(
    client, api_server, definitions, root, caplog
):
    namespace = api_server.make_namespace(unique("shop"))
    async with replica(client, root) as made:
        failing = [True]

        def defect(_changed):
            if failing.pop():
                raise ZeroDivisionError

        made.control.plane.on_change.append(defect)
        for name in ("first", "second"):
            service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
            await client.create(SERVICES, service, namespace=namespace)
            await eventually(lambda name=name: made.control.plane.mesh.get(ObjectKey("Service", namespace, name)))
            failing.append(False)
        assert "was not applied completely" in caplog.text
        assert made.is_ready


async def test_one_of_two_replicas_leads_and_both_sign_with_one_root(client, root):
    async with replica(client, root, "one") as one:
        async with replica(client, root, "two") as two:
            assert one.control.authority.bundle() == two.control.authority.bundle()
            await eventually(lambda: one.control._leader.leading)
            assert not two.control._leader.leading
            wanted = "".join(one.control.authority.bundle())
            await eventually(lambda: published_in(client, root), lambda value: value == wanted, every=0.1)
        assert (await one.get("/ready"))[0] == 200
    async with replica(client, root, "three") as three:
        await eventually(lambda: three.control._leader.leading)


async def test_the_trust_domain_is_the_mesh_configurations(client, root):
    manifest = {"metadata": {"name": "istio"}, "data": {"mesh": "trustDomain: example.org\n"}}
    await client.create(CONFIG_MAPS, manifest, namespace=root)
    async with replica(client, root) as made:
        assert made.control.authority.trust_domain == "example.org"


async def test_a_changed_trust_domain_is_reported_and_used_after_a_restart(client, root):
    """With the new trust domain at once, proxies would reject each other's certificates."""
    manifest = {"metadata": {"name": "istio"}, "data": {"mesh": "trustDomain: example.org\n"}}
    await client.create(CONFIG_MAPS, manifest, namespace=root)
    async with replica(client, root) as made:
        plane = made.control.plane
        assert plane.mesh.settings.trust_domain == "example.org" and not about(plane, "trustDomain")
        changed = {"data": {"mesh": "trustDomain: other.org\naccessLogFile: /dev/stdout\n"}}
        await client.patch(CONFIG_MAPS, "istio", changed, namespace=root)
        await eventually(lambda: about(plane, "trustDomain"))
        [problem] = about(plane, "trustDomain")
        assert str(problem).startswith(
            f"ConfigMap {root}/istio: trustDomain: error: it is other.org now, but certificates still have example.org"
        )
        assert plane.mesh.settings.trust_domain == "example.org"
        await client.patch(CONFIG_MAPS, "istio", {"data": manifest["data"]}, namespace=root)
        await eventually(lambda: not about(plane, "trustDomain"))


def about(plane, words):
    """Return the current problems that contain these words; all tests share the API server."""
    return [each for each in plane.problems() if words in str(each)]


@contextlib.asynccontextmanager
async def with_plugged_ca(client, root, directory):
    settings = ClusterSettings(
        namespace=root, plugged=directory, xds="127.0.0.1:0", secure="127.0.0.1:0",
        webhooks=("127.0.0.1", 0), monitoring=("127.0.0.1", 0), log_scopes=("127.0.0.1", 0),
    )  # fmt: skip
    control = ClusterControl(client, settings)
    running = asyncio.create_task(control.run())
    try:
        await eventually(lambda: control.ports.get("secure") or running.done())
        yield control
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_ca_plugged_in_later_is_reported_and_used_after_a_restart(client, root, tmp_path):
    async with with_plugged_ca(client, root, tmp_path) as control:
        before = control.authority.bundle()
        key = making.p256()
        making.plug_in(tmp_path, certificate=making.ca("root", key), key=key)
        await eventually(lambda: about(control.plane, str(tmp_path)))
        [problem] = about(control.plane, str(tmp_path))
        assert "the root that weft made signs until the control plane restarts" in str(problem)
        assert f"kubectl -n {root} rollout restart deployment/weft-control" in problem.hint
        assert control.authority.bundle() == before


async def test_a_plugged_in_ca_signs_where_there_is_one(client, root, tmp_path):
    key = making.p256()
    making.plug_in(tmp_path, certificate=(own := making.ca("root", key)), key=key)
    async with with_plugged_ca(client, root, tmp_path) as control:
        assert control.authority.bundle() == (certificate_pem(own),)


async def test_an_unavailable_api_server_is_waited_for_at_the_start(api_server, root):
    """If the process exited instead, its restart back-off would grow, and it would be down when the API server is
    back."""
    connection = load(api_server.kubeconfig)
    there = urlsplit(connection.server)
    port, line = free_port(), Wire()
    async with Client(msgspec.structs.replace(connection, server=f"https://127.0.0.1:{port}")) as client:
        made = Replica(client, root, "one")
        running = asyncio.create_task(made.control.run())
        try:
            await eventually(lambda: made.control.ports.get("monitoring"))
            assert [(await made.get(path))[0] for path in ("/healthz", "/ready")] == [200, 503]
            refused = asyncio.create_task(client.raw("GET", "/version"))
            await asyncio.wait({refused})
            assert isinstance(refused.exception(), ApiUnavailable) and not running.done()
            carry = functools.partial(line.carry, (there.hostname, there.port))
            async with await asyncio.start_server(carry, "127.0.0.1", port):
                await eventually(lambda: made.is_ready or running.done())
                assert not running.done() and (await made.get("/ready"))[0] == 200
                made.control.leave()
                assert (await made.get("/ready"))[0] == 503
                line.cut()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def unbound_token(client, namespace, audience="istio-ca"):
    """Create a token that is not bound to a pod, as istioctl and weft do for their user."""
    spec = {"audiences": [audience], "expirationSeconds": 600}
    manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = await client.create(SERVICE_ACCOUNTS, manifest, namespace=namespace, name="default", subresource="token")
    return made["status"]["token"]


async def test_debug_responses_are_only_for_accounts_of_the_control_planes_namespace(client, api_server, root):
    namespace = api_server.make_namespace(unique("shop"))
    own, strange = await unbound_token(client, root), await unbound_token(client, namespace)
    _, of_a_pod = await pod_with_token(client, namespace)
    # Tokens of the same account for the API server's audience, with a changed payload, and with a changed signature.
    elsewhere = await unbound_token(client, root, audience="https://kubernetes.default.svc.cluster.local")
    head, said, signature = own.split(".")
    changed, unsigned = f"{head}.{strange.split('.')[1]}.{signature}", f"{head}.{said}."
    bad = ("", "rubbish", elsewhere, changed, unsigned)
    async with replica(client, root) as made:
        for token, status in (*((each, 401) for each in bad), (strange, 403), (of_a_pod, 403), (own, 200)):
            for page in ("connections", "configz", "config_dump?proxyID=web-0.shop", "adsz"):
                assert (await made.get(f"/debug/{page}", token))[0] in (status, 404 if status == 200 else status), page
        roots = "".join(made.control.authority.bundle())
        credentials = grpc.ssl_channel_credentials(roots.encode())
        override = (("grpc.ssl_target_name_override", f"istiod.{root}.svc"),)
        address = f"127.0.0.1:{made.control.ports['secure']}"
        async with grpc.aio.secure_channel(address, credentials, options=override) as channel:
            told = Istioctl(channel, own)
            await told.ask("istio.io/debug/syncz")
            assert (await told.read()).type_url == "istio.io/debug/syncz"
            for token, code in (
                (strange, grpc.StatusCode.PERMISSION_DENIED),
                (of_a_pod, grpc.StatusCode.PERMISSION_DENIED),
                *((each, grpc.StatusCode.UNAUTHENTICATED) for each in bad),
            ):
                refused = Istioctl(channel, token)
                await refused.ask("istio.io/debug/syncz")
                assert await refused.code() is code
            # A caller that may send debug requests is still not a proxy.
            proxy = Istioctl(channel, own)
            await proxy.ask(CLUSTER, nonce="")
            assert await proxy.code() is grpc.StatusCode.PERMISSION_DENIED
