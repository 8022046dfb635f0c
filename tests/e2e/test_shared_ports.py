"""One port of a workload for which two Services declare different protocols: callers of each Service get its
protocol, whichever is older (in files the first by name); callers without mutual TLS get the protocol of the
older one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.looking import parsed, weft
from e2e.objects import destination_rule, istio, service, text, workload
from eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BARE = {"sidecar.istio.io/inject": "false"}
PREFIXES = {"tcp": "tcp-", "http": "http-", "grpc": "grpc-", "unsaid": ""}
PAIRS = (*itertools.permutations(("tcp", "http", "unsaid"), 2), ("http", "grpc"), ("grpc", "http"))
DRAINING = r"^listener_manager\.total_filter_chains_draining$"
APPS = ("http", "echo", "grpc", "greeting")  # each pair shares one


class Shared(NamedTuple):
    """A Service of a pair; the older one comes first."""

    pair: tuple[str, str]
    newer: bool

    @property
    def says(self) -> str:
        return self.pair[self.newer]

    @property
    def first(self) -> str:
        return self.pair[0]

    def __str__(self) -> str:
        return f"{'z' if self.newer else 'a'}-{'-'.join(self.pair)}"

    def port(self, app: str) -> int:
        return 7000 + 10 * PAIRS.index(self.pair) + APPS.index(app)


EVERY = [Shared(pair, newer) for pair in PAIRS for newer in (False, True)]


def files(control):
    served = dict.fromkeys(f"{app}={each.port(app)}" for each in EVERY for app in APPS)
    services = []
    for each in EVERY:
        ports = [{"name": f"{PREFIXES[each.says]}{app}x", "port": each.port(app)} for app in APPS]
        headless = {"clusterIP": "None"} if each.says == "unsaid" else {}  # as undeclared ones mostly are
        services.append(service(str(each), *ports, selector={"app": "server"}, **headless))
    return {
        "client.yaml": text(workload("client", control=control)),
        "outsider.yaml": text(workload("outsider", control=control, annotations=BARE)),
        "server.yaml": text(workload("server", control=control, serve=" ".join(served)), *services),
        "edge.yaml": text(*edge()),
        "alone.yaml": text(
            workload("alone", control=control, serve="echo=9000"), service("alone", {"name": "tcp", "port": 9000})
        ),
    }


def edge():
    """A gateway that routes to the HTTP port of each Service by its name."""
    served = {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}
    pod = workload("edge", control=Path())
    yield {**pod, "spec": {"gateway": {"publish": []}, "serviceAccount": "edge"}}
    yield service("edge", {"name": "http", "port": 80})
    yield istio("Gateway", "edge", {"selector": {"app": "edge"}, "servers": [served]})
    for each in EVERY:
        to = {"destination": {"host": str(each), "port": {"number": each.port("http")}}}
        routing = {"hosts": [f"{each}.example.com"], "gateways": ["edge"], "http": [{"route": [to]}]}
        yield istio("VirtualService", str(each), routing)


def saying(*words):
    return [pytest.param(each, id=str(each)) for each in EVERY if each.says in words]


def security(kind, spec, app="server"):
    selected = {"selector": {"matchLabels": {"app": app}}, **spec}
    metadata = {"name": "server", "namespace": "shop"}
    return {
        "test.yaml": text({"apiVersion": "security.istio.io/v1", "kind": kind, "metadata": metadata, "spec": selected})
    }


async def status(mesh, caller, shared, path="/"):
    return (await mesh.get(caller, f"http://{shared}:{shared.port('http')}{path}"))["status"]


async def echoed(mesh, caller, shared):
    answer = await mesh.tell(
        caller, "tcp", host=str(shared), port=shared.port("echo"), send="bytes\n", read=6, timeout=5
    )
    return answer["received"] == "bytes\n"


async def called(mesh, shared):
    target = f"{shared}:{shared.port('grpc')}"
    return await mesh.tell("client", "grpc_status", target=target, method="Unary", details=True)


@pytest.mark.parametrize("shared", [each for each in saying(*PREFIXES) if each.values[0].pair != ("grpc", "http")])
@pytest.mark.parametrize("caller", ["client", "outsider"])
async def test_an_application_that_speaks_only_http1_responds(mesh, caller, shared):
    assert await status(mesh, caller, shared) == 200


@pytest.mark.parametrize("shared", [each for each in saying("http", "unsaid") if "grpc" not in each.values[0].pair])
async def test_a_request_through_a_gateway_gets_a_response(mesh, shared):
    assert (await mesh.get("outsider", "http://edge/", headers={"Host": f"{shared}.example.com"}))["status"] == 200


@pytest.mark.parametrize("shared", saying("tcp", "unsaid"))
@pytest.mark.parametrize("caller", ["client", "outsider"])
async def test_bytes_arrive_unless_the_older_service_declares_http_and_the_newer_declares_nothing(mesh, caller, shared):
    kept = shared.pair == ("http", "unsaid")
    assert await echoed(mesh, caller, shared) is not kept


@pytest.mark.parametrize("shared", [*saying("tcp", "unsaid", "grpc"), pytest.param(EVERY[-1], id=str(EVERY[-1]))])
async def test_grpc_passes_a_service_that_does_not_declare_http1(mesh, shared):
    """It also passes one that does, if an older Service declares gRPC."""
    if shared.pair == ("http", "grpc"):  # the older one decides, unless it uses the callers' protocol
        assert await called(mesh, shared) != {"OK": 1}
        older = str(Shared(shared.pair, newer=False))
        as_called = {"http": {"useClientProtocol": True}}
        await mesh.edit({"test.yaml": text(destination_rule(older, connectionPool=as_called))})
    assert await called(mesh, shared) == {"OK": 1}


async def drained(mesh, workload):
    """Wait until the workload's proxy has closed the connections of all filter chains that an edit replaced. It closes
    them when its drain time ends, and a request that arrives in that moment fails."""

    async def quiet():
        return await mesh.stat(workload, DRAINING) == 0

    await eventually(quiet)


async def test_shared_ports_work_with_strict_mtls(mesh):
    await mesh.edit(security("PeerAuthentication", {"mtls": {"mode": "STRICT"}}))
    await drained(mesh, "server")
    for each in EVERY:
        if "grpc" in each.pair:
            continue
        assert await status(mesh, "client", each) == 200, each
        if each.says == "tcp":
            assert await echoed(mesh, "client", each), each
        if each.says != "http":
            assert await called(mesh, each) == {"OK": 1}, each


async def test_with_strict_mtls_a_newer_service_ends_no_connection_of_the_older(mesh):
    strict = security("PeerAuthentication", {"mtls": {"mode": "STRICT"}}, app="alone")
    await mesh.edit(strict)
    await drained(mesh, "alone")
    await mesh.tell("client", "keep", name="bytes", host="alone", port=9000)
    await mesh.tell("client", "say", name="bytes", send="before.", until="before.")
    newcomer = service("newcomer", {"name": "http", "port": 9000}, selector={"app": "alone"})
    await mesh.edit({"test.yaml": strict["test.yaml"] + "---\n" + text(newcomer)})
    assert await mesh.get("client", "http://newcomer:9000/")  # it exists, and its application does not speak HTTP
    assert await mesh.stat("alone", DRAINING) == 0
    await mesh.tell("client", "say", name="bytes", send="after.", until="after.")


async def test_a_port_that_the_older_service_declares_as_tcp_is_not_delayed(mesh):
    """With PERMISSIVE every connection waits for a TLS ClientHello."""
    await mesh.edit(security("PeerAuthentication", {"mtls": {"mode": "DISABLE"}}))
    waited = {}
    for pair in (("tcp", "http"), ("http", "tcp")):
        shared = Shared(pair, newer=pair[1] == "tcp")
        answer = await mesh.tell(
            "outsider", "tcp", host=str(shared), port=shared.port("greeting"), wait_first=True, half_close=True
        )
        assert answer["first"].startswith("greetings")
        waited[shared.first] = answer["first_after"]
    assert waited["tcp"] < 0.9 < waited["http"]


@pytest.mark.parametrize("older", ["tcp", "unsaid"])
async def test_without_mtls_the_older_service_decides_the_protocol_for_callers_with_a_proxy(mesh, older):
    """The HTTP/2 of the callers' proxies is forwarded as TCP."""
    shared = Shared((older, "http"), newer=True)
    plaintext = security("PeerAuthentication", {"mtls": {"mode": "DISABLE"}})
    await mesh.edit(plaintext)

    async def answered(expected):
        return await status(mesh, "client", shared) == expected

    await eventually(lambda: answered(502))
    url = f"http://{shared}:{shared.port('http')}"
    (outcome,) = parsed(await weft("explain", "client", "--to", url, "-o", "json"))["outcomes"]
    assert outcome["verdict"]["kind"] == "unknown" and "502" in outcome["verdict"]["why"]
    as_it_is = destination_rule(str(shared), connectionPool={"http": {"h2UpgradePolicy": "DO_NOT_UPGRADE"}})
    await mesh.edit({"test.yaml": plaintext["test.yaml"] + "---\n" + text(as_it_is)})
    await eventually(lambda: answered(200))


@pytest.mark.parametrize("shared", [each for each in saying("http") if "grpc" not in each.values[0].pair])
@pytest.mark.parametrize(("action", "paths"), [("ALLOW", ["/well"]), ("DENY", ["/ill"])])
async def test_a_policy_for_paths_sees_those_of_http_and_lets_no_bytes_in(mesh, shared, action, paths):
    rules = [{"to": [{"operation": {"paths": paths}}]}]
    await mesh.edit(security("AuthorizationPolicy", {"action": action, "rules": rules}))
    assert await status(mesh, "client", shared, "/well") == 200
    assert await status(mesh, "client", shared, "/ill") == 403
    other = Shared(shared.pair, newer=not shared.newer)
    for caller in ("client", "outsider"):
        assert not await echoed(mesh, caller, other)
    assert await status(mesh, "client", other, "/ill") != 200


@pytest.mark.parametrize("shared", [each for each in saying(*PREFIXES) if "grpc" not in each.values[0].pair])
@pytest.mark.parametrize("caller", ["client", "outsider"])
async def test_explain_predicts_whether_a_call_is_delivered(mesh, caller, shared):
    for scheme, app in (("http", "http"), ("tcp", "echo")):
        url = f"{scheme}://{shared}:{shared.port(app)}"
        (outcome,) = parsed(await weft("explain", caller, "--to", url, "-o", "json"))["outcomes"]
        really = await status(mesh, caller, shared) == 200 if app == "http" else await echoed(mesh, caller, shared)
        assert (outcome["verdict"]["kind"] == "delivered") is really, outcome["verdict"]
