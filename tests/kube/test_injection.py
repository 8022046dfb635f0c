"""Injection as a real API server asks for it: the truth table, two webhooks in each order, webhooks that are gone, and
namespaces that forbid what istio-init needs. The injector is the real one, behind its own TLS."""

import asyncio
import base64
import contextlib
import itertools
import threading

import msgspec
import pytest
from aiohttp import web
from tools.kube.api_server import RequestFailed

from inject.test_server import certificate
from inject.truth_table import CASES
from weft.control.sidecars import arguments
from weft.inject.injector import Injector
from weft.inject.json_patch import copied, difference
from weft.inject.review import Answer, decode, encode
from weft.inject.server import Server
from weft.inject.settings import Settings
from weft.install.values import Injection, Values
from weft.install.webhooks import injector as configuration

PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
STATUS = "sidecar.istio.io/status"
_numbers = itertools.count()


class Webhooks:
    """Both revisions' injectors, on a thread of their own, and what the API server knows of them."""

    def __init__(self, api, servers, chain, loop):
        self.api, self.servers, self.chain, self._loop = api, servers, chain, loop

    def settle(self, revision, **settings):
        self.servers[revision].injector.settings = msgspec.convert({**settings, "revision": revision}, Settings)

    def configure(self, revision, *, by_default=False, failure_policy="Fail", port=None):
        body = configuration(
            Values(revision=revision, injection=Injection(by_default=by_default, failure_policy=failure_policy))
        )
        url = f"https://127.0.0.1:{port or self.servers[revision].port}/inject"
        return self.put(body["metadata"]["name"], body["webhooks"], url)

    def put(self, name, webhooks, url):
        bundle = base64.b64encode(self.chain).decode()
        name = f"weft-test-{name}"
        for each in webhooks:
            each["clientConfig"] = {"url": url, "caBundle": bundle}
        body = {"metadata": {"name": name}, "webhooks": webhooks}
        self.remove(name)
        self.api.request("POST", PATH, body)
        return name

    def remove(self, name):
        with contextlib.suppress(RequestFailed):
            self.api.request("DELETE", f"{PATH}/{name}")

    def remove_all(self):
        for each in self.api.request("GET", PATH)["items"]:
            if each["metadata"]["name"].startswith("weft-test-"):
                self.remove(each["metadata"]["name"])

    def namespace(self, labels=None):
        return self.api.make_namespace(f"inject-{next(_numbers)}", labels)

    def create(self, namespace, pod):
        """As far as to the store and no further."""
        return self.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)

    async def until(self, namespace, pod, wanted):
        """A configuration that was written holds a moment later."""
        last = None
        for _ in range(400):
            try:
                last = await asyncio.to_thread(self.create, namespace, pod)
            except RequestFailed as failed:
                last = failed
            if wanted(last):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"still: {last}")


@pytest.fixture(scope="module")
def webhooks(own_api_server):
    chain, key = certificate()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def on_thread(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    servers = {}
    for revision in ("default", "canary"):
        servers[revision] = Server(Injector(Settings(revision=revision), arguments, native_sidecars=True))
        servers[revision].use_certificate(chain, key)
        on_thread(servers[revision].start("127.0.0.1", 0))
    yield Webhooks(own_api_server, servers, chain, loop)
    for server in servers.values():
        on_thread(server.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture(autouse=True)
def _clean(webhooks):
    yield
    webhooks.remove_all()
    for revision in webhooks.servers:
        webhooks.settle(revision)


def pod(labels=None, annotations=None, containers=None, **spec):
    metadata = {"generateName": "web-", "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": containers or [{"name": "app", "image": "app"}], **spec}}


def injected_by(result):
    status = result.get("metadata", {}).get("annotations", {}).get(STATUS) if isinstance(result, dict) else None
    return msgspec.json.decode(status)["revision"] if status else ""


@pytest.mark.parametrize("by_default", [False, True], ids=["", "namespaces by default"])
async def test_the_truth_table(webhooks, by_default):
    for revision in webhooks.servers:
        webhooks.configure(revision, by_default=by_default)
    webhooks.settle("default", enableNamespacesByDefault=by_default)
    enabled = webhooks.namespace({} if by_default else {"istio-injection": "enabled"})
    await webhooks.until(enabled, pod(), lambda result: injected_by(result) == "default")
    named = webhooks.namespace({"istio.io/rev": "canary"})
    await webhooks.until(named, pod(), lambda result: injected_by(result) == "canary")

    wrong = []
    for case in CASES:
        if case.settings.get("enableNamespacesByDefault", False) is not by_default:
            continue
        webhooks.settle(case.revision, **case.settings)
        namespace = await asyncio.to_thread(_namespace_of, webhooks, case)
        wanted = pod(case.labels, case.annotations, **case.spec)
        result = await asyncio.to_thread(webhooks.create, namespace, wanted)
        if (injected_by(result) == case.revision) is not case.injected:
            wrong.append((case.name, injected_by(result)))
        webhooks.settle(case.revision)
    assert wrong == []


def _namespace_of(webhooks, case):
    if not case.namespace:
        return webhooks.namespace(case.namespace_labels)
    with contextlib.suppress(RequestFailed):
        webhooks.api.make_namespace(case.namespace)
    webhooks.api.make_default_account(case.namespace)
    labels = {**dict.fromkeys(("istio-injection", "istio.io/rev")), **case.namespace_labels}
    body = {"metadata": {"labels": labels}}
    webhooks.api.request("PATCH", f"/api/v1/namespaces/{case.namespace}", body, kind="application/merge-patch+json")
    return case.namespace


OTHER = {
    "name": "other.example.org",
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "reinvocationPolicy": "IfNeeded",
    "failurePolicy": "Fail",
    "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
}
ADDED = {"name": "agent", "image": "agent", "readinessProbe": {"httpGet": {"port": 9000, "path": "/agent"}}}


@contextlib.asynccontextmanager
async def other_webhook():
    """One that adds a container with a probe, once."""

    async def answer(http):
        request = decode(await http.read())
        after = copied(request.object)
        if all(each["name"] != "agent" for each in after["spec"]["containers"]):
            after["spec"]["containers"].append(copied(ADDED))
        patch = tuple(difference(request.object, after))
        return web.Response(
            body=encode(request.uid, Answer(allowed=True, patch=patch)), content_type="application/json"
        )

    chain, key = certificate()
    made = Server(Injector(Settings(), arguments, native_sidecars=True))
    made.use_certificate(chain, key)
    runner = web.ServerRunner(web.Server(answer), handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=made._tls)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/", chain
    await runner.cleanup()


async def test_whichever_webhook_comes_first_the_pod_is_the_same(webhooks):
    app = {"name": "app", "image": "app", "livenessProbe": {"tcpSocket": {"port": 80}}}
    namespace = webhooks.namespace({"istio-injection": "enabled"})
    results = []
    async with other_webhook() as (url, chain):
        for name in ("a-comes-first", "z-comes-last"):
            # The API server asks in the order of the names; ours is called weft-test-istio-sidecar-injector.
            webhooks.configure("default")
            other = Webhooks(webhooks.api, {}, chain, None)
            other.put(name, [copied(OTHER)], url)
            await webhooks.until(
                namespace,
                pod(),
                lambda result: (
                    injected_by(result) and any(each["name"] == "agent" for each in result["spec"]["containers"])
                ),
            )
            result = await asyncio.to_thread(webhooks.create, namespace, pod(containers=[app]))
            results.append(result)
            webhooks.remove_all()
            await webhooks.until(
                namespace, pod(), lambda result: not injected_by(result) and len(result["spec"]["containers"]) == 1
            )
    for result in results:
        (agent,) = [each for each in result["spec"]["containers"] if each["name"] == "agent"]
        assert agent["readinessProbe"]["httpGet"]["path"] == "/app-health/agent/readyz"
        (proxy,) = [each for each in result["spec"]["initContainers"] if each["name"] == "istio-proxy"]
        told = {each["name"]: each.get("value") for each in proxy["env"]}
        assert told["ISTIO_META_APP_CONTAINERS"] == "app,agent"
        assert "probe|/app-health/agent/readyz" in proxy["args"][1]
        assert "probe|/app-health/app/livez" in proxy["args"][1]
        result["spec"]["volumes"].sort(key=lambda each: each["name"][:4])
        for field in ("name", "uid", "creationTimestamp", "managedFields"):
            result["metadata"].pop(field, None)
        for each in [*result["spec"]["containers"], *result["spec"]["initContainers"]]:
            each.pop("volumeMounts", None)  # the account's token has a name of its own in every pod
            each.get("env", []).sort(key=lambda one: one["name"])
        result["spec"]["volumes"] = [
            each for each in result["spec"]["volumes"] if not each["name"].startswith("kube-api")
        ]
    assert results[0] == results[1]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_webhook_that_is_gone_refuses_pods_or_lets_them_go_without(webhooks, policy):
    namespace = webhooks.namespace({"istio-injection": "enabled"})
    webhooks.configure("default", failure_policy=policy)
    await webhooks.until(namespace, pod(), injected_by)
    # A port that nobody listens on.
    webhooks.configure("default", failure_policy=policy, port=1)
    if policy == "Fail":
        await webhooks.until(namespace, pod(), lambda result: isinstance(result, RequestFailed))
        with pytest.raises(RequestFailed, match=r"failed calling webhook.*namespace.sidecar-injector.istio.io"):
            await asyncio.to_thread(webhooks.create, namespace, pod())
    else:
        await webhooks.until(namespace, pod(), lambda result: isinstance(result, dict) and not injected_by(result))


async def test_what_cannot_be_injected_is_refused_with_the_reason(webhooks):
    namespace = webhooks.namespace({"istio-injection": "enabled"})
    webhooks.configure("default")
    await webhooks.until(namespace, pod(), injected_by)
    with pytest.raises(RequestFailed, match=r"excludeInboundPorts.*`http` is not a port"):
        await asyncio.to_thread(
            webhooks.create, namespace, pod(annotations={"traffic.sidecar.istio.io/excludeInboundPorts": "http"})
        )


async def test_a_restricted_namespace_refuses_istio_init_alone_and_nothing_where_the_node_redirects(webhooks):
    labels = {"istio-injection": "enabled", "pod-security.kubernetes.io/enforce": "restricted"}
    namespace = webhooks.namespace(labels)
    careful = {
        "name": "app",
        "image": "app",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    wanted = pod(containers=[careful])
    webhooks.settle("default", redirectBy="node")
    webhooks.configure("default")
    await webhooks.until(namespace, wanted, injected_by)
    webhooks.settle("default", redirectBy="init")
    with pytest.raises(RequestFailed) as refused:
        await asyncio.to_thread(webhooks.create, namespace, wanted)
    assert "istio-init" in str(refused.value)
    assert "runAsUser=0" in str(refused.value)
    assert "istio-proxy" not in str(refused.value)
