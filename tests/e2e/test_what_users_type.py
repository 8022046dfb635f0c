"""Commands of istioctl's users, row by row: every command, every flag, every form of a name and of the output, on
the demo's own mesh. The output is compared with Envoy's admin API in the pod, or with the kernel."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import grpc.aio
import pytest
import yaml
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest
from tests.inspect.debug.test_stream import METHOD as STREAM

from e2e.looking import cells, parsed, rows, weft
from e2e.mesh import proxy_process
from eventually import eventually
from weft.local.run_directory import socket_of
from weft.xds.types import ROUTE

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SHOP = Path(__file__).parents[2] / "examples" / "shop"
POD, PAYMENTS = "frontend-0", "payments.shop.svc.cluster.local"
FORMS = (
    ["frontend-0"],
    ["frontend-0.shop"],
    ["deploy/frontend"],
    ["frontend-0", "-n", "shop"],
    ["deploy/frontend", "--namespace", "shop"],
)
ASK = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())"


def files(control):
    """The demo's files, with a workload without a proxy."""
    found = {str(path.relative_to(SHOP)): path.read_text() for path in SHOP.rglob("*") if path.is_file()}
    return {**found, "outsider.yaml": found["outsider.yaml.example"]}


async def envoy(mesh, path, pod="frontend"):
    """As curl in the pod gets it, without weft."""
    into = ["nsenter", "-t", str(mesh.pod(pod).pid), "-n", sys.executable, "-c", ASK, f"http://127.0.0.1:15000{path}"]
    return json.loads((await asyncio.to_thread(subprocess.run, into, capture_output=True, check=True)).stdout)


async def section(mesh, kind):
    dump = await envoy(mesh, "/config_dump?include_eds=true")
    return next(each for each in dump["configs"] if each["@type"].endswith(f".{kind}ConfigDump"))


async def listeners(mesh):
    found = await section(mesh, "Listeners")
    return [each["active_state"]["listener"] for each in found["dynamic_listeners"]] + [
        each["listener"] for each in found.get("static_listeners", ())
    ]


def sockets(listener):
    every = [listener, *listener.get("additional_addresses", ())]
    return [each["address"]["socket_address"] for each in every]


def kind(listener):
    """As in istioctl: by the network filters."""
    held = json.dumps(listener)
    found = [
        word for word, name in (("HTTP", "http_connection_manager"), ("TCP", "tcp_proxy")) if f"network.{name}" in held
    ]
    return "+".join(found)


@pytest.mark.parametrize(
    ("flags", "fits"),
    [
        ([], lambda each: True),
        (["--port", "80"], lambda each: sockets(each)[0]["port_value"] == 80),
        (["--address", "0.0.0.0"], lambda each: "0.0.0.0" in [one["address"] for one in sockets(each)]),
        (["--address", "::", "--port", "15090"], lambda each: sockets(each)[0]["port_value"] == 15090),
        (["--type", "HTTP"], lambda each: kind(each) == "HTTP"),
        (["--type", "TCP"], lambda each: kind(each) == "TCP"),
        (["--type", "HTTP+TCP", "--port", "15006"], lambda each: each["name"] == "virtualInbound"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_listeners(mesh, flags, fits):
    truth = [each for each in await listeners(mesh) if fits(each)]
    assert truth
    shown = cells(await weft("proxy-config", "listeners", POD, "--brief", *flags))
    assert sorted((row[0].split(",")[0], row[1], row[2]) for row in shown) == sorted(
        (sockets(each)[0]["address"], str(sockets(each)[0]["port_value"]), kind(each)) for each in truth
    )
    whole = parsed(await weft("proxy-config", "listeners", POD, "-o", "json", *flags))
    assert sorted(whole, key=str) == sorted(truth, key=str)


async def test_routes_by_name(mesh):
    found = await section(mesh, "Routes")
    truth = {each["route_config"]["name"]: each["route_config"] for each in found["dynamic_route_configs"]}
    for name in truth:
        assert parsed(await weft("proxy-config", "routes", POD, "--name", name, "-o", "json")) == [truth[name]]
        shown = cells(await weft("proxy-config", "routes", POD, "--name", name))
        assert {row[0] for row in shown} == {name}
        # Like istioctl, weft does not list passthrough as a route.
        hosts = [each for each in truth[name]["virtual_hosts"] if "PassthroughCluster" not in json.dumps(each)]
        assert sorted(row[1] for row in shown) == sorted(each["name"] for each in hosts for _ in each["routes"])


@pytest.mark.parametrize(
    ("flags", "fits"),
    [
        (["--fqdn", PAYMENTS], lambda way, port, subset, host: host == PAYMENTS),
        (["--port", "80"], lambda way, port, subset, host: port == "80"),
        (["--subset", "v2"], lambda way, port, subset, host: subset == "v2"),
        (["--direction", "inbound"], lambda way, port, subset, host: way == "inbound"),
        (["--direction", "outbound"], lambda way, port, subset, host: way == "outbound"),
        (["--fqdn", PAYMENTS, "--subset", "v1", "--port", "80", "--direction", "outbound"],
         lambda *name: name == ("outbound", "80", "v1", PAYMENTS)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
async def test_clusters(mesh, flags, fits):
    names = [each["name"].split("|") for each in (await envoy(mesh, "/clusters?format=json"))["cluster_statuses"]]
    truth = sorted(tuple(name) for name in names if len(name) == 4 and fits(*name))
    assert truth
    shown = cells(await weft("proxy-config", "clusters", POD, *flags))
    assert sorted((row[3], row[1], row[2].strip("-"), row[0]) for row in shown) == truth


@pytest.mark.parametrize("flag", ["--address", "--port", "--cluster", "--status", "all of them"])
async def test_endpoints(mesh, flag):
    truth = []
    for cluster in (await envoy(mesh, "/clusters?format=json"))["cluster_statuses"]:
        for host in cluster.get("host_statuses", ()):
            if "socket_address" in host["address"]:
                at, status = host["address"]["socket_address"], host["health_status"]["eds_health_status"]
                truth.append((at["address"], str(at["port_value"]), cluster["name"], status))
    wanted = (mesh.pod("payments-v1").addresses[0], "8080", f"outbound|80|v1|{PAYMENTS}", "HEALTHY")
    names = ("--address", "--port", "--cluster", "--status")
    flags = {name: value for name, value in zip(names, wanted, strict=True) if flag in (name, "all of them")}
    places = [names.index(name) for name in flags]
    expected = sorted(each for each in truth if all(each[place] == wanted[place] for place in places))
    assert expected
    shown = cells(await weft("proxy-config", "endpoints", POD, *(word for pair in flags.items() for word in pair)))
    tcp = [row for row in shown if row[0].rpartition(":")[2].isdigit()]
    assert sorted((*row[0].rpartition(":")[::2], row[3], row[1]) for row in tcp) == expected


async def test_secret(mesh):
    """The serial number and the times are those of the certificate that Envoy presents."""
    head, own, root = rows(await weft("proxy-config", "secret", POD))
    assert "  ".join(head) == (
        "RESOURCE NAME  TYPE  STATUS  VALID CERT  SERIAL NUMBER  NOT AFTER  NOT BEFORE  TRUST DOMAIN"
    )
    used = (await envoy(mesh, "/certs"))["certificates"]
    chains = [each for one in used for each in one.get("cert_chain", ())]
    assert own[4].lstrip("0") in {each["serial_number"].lstrip("0") for each in chains}
    assert (own[5], own[6]) in {(each["expiration_time"], each["valid_from"]) for each in chains}
    assert root[4].lstrip("0") in {each["serial_number"].lstrip("0") for one in used for each in one.get("ca_cert", ())}
    assert own[7] == "cluster.local"


WHOLE = {
    "listeners": lambda told: told,
    "routes": lambda told: told,
    "clusters": lambda told: told,
    "endpoints": lambda told: {each["name"] for each in told},  # the counters beside them change
    "secret": lambda told: told,
    "bootstrap": lambda told: told,
    "log": lambda told: told,
    "all": lambda told: [each["@type"] for each in told["configs"]],
}


@pytest.mark.parametrize("command", WHOLE)
async def test_json_and_yaml_have_the_same_content_and_short_is_the_table(mesh, command):
    said = await weft("proxy-config", command, POD, "-o", "json")
    assert WHOLE[command](json.loads(said)) == WHOLE[command](
        yaml.safe_load(await weft("proxy-config", command, POD, "-o", "yaml"))
    )
    assert "PRIVATE KEY" not in said
    short = await weft("proxy-config", command, POD, "-o", "short")
    assert short.strip() and not short.startswith(("{", "["))
    if command in ("listeners", "secret"):  # the default; for `bootstrap`, istioctl also shows all by default
        assert short == await weft("proxy-config", command, POD)


async def test_whole_dumps_are_those_of_envoy(mesh):
    assert (
        parsed(await weft("pc", "bootstrap", POD, "-o", "json"))["bootstrap"]
        == ((await section(mesh, "Bootstrap"))["bootstrap"])
    )
    ours, truth = parsed(await weft("pc", "secret", POD, "-o", "json")), await section(mesh, "Secrets")
    assert ours["dynamic_active_secrets"] == truth["dynamic_active_secrets"]
    ours = parsed(await weft("pc", "clusters", POD, "-o", "json"))
    found = await section(mesh, "Clusters")
    truth = [each["cluster"] for name in ("static_clusters", "dynamic_active_clusters") for each in found.get(name, ())]
    assert sorted(ours, key=str) == sorted(truth, key=str)


NAMED = [
    *(f"proxy-config {command} -o short" for command in WHOLE),
    *("proxy-status", "describe pod", "x describe pod", "check-inject", "x check-inject", "x authz check"),
]


@pytest.mark.parametrize("command", NAMED)
async def test_a_proxy_is_found_by_every_form_of_its_name(mesh, command):
    """The first and last commands try every form, the others two in turn: each process takes time."""
    turn = NAMED.index(command)
    forms = FORMS if turn % (len(NAMED) - 1) == 0 else (FORMS[turn % len(FORMS)], FORMS[(turn + 1) % len(FORMS)])
    told = await asyncio.gather(*(weft(*command.split(), *words) for words in forms))
    assert told[0] and set(told) == {told[0]}


async def test_a_name_that_is_in_two_namespaces_is_not_guessed(mesh):
    other = {**next(yaml.safe_load_all((SHOP / "snoop.yaml").read_text()))}
    other["metadata"] = {**other["metadata"], "name": "frontend", "namespace": "other"}
    service = next(
        each for each in yaml.safe_load_all((SHOP / "frontend.yaml").read_text()) if each["kind"] == "Service"
    )
    service["metadata"]["namespace"] = "other"
    await mesh.try_out(other, service)
    await eventually(lambda: {pod.namespace for pod in mesh.pods("frontend")} == {"shop", "other"})
    for command in (
        *("pc clusters frontend", "proxy-status deploy/frontend", "describe pod frontend-0", "describe svc frontend"),
        *("check-inject frontend", "authn tls-check frontend", "x authz check frontend", "why frontend 80"),
        *("explain frontend --to http://payments/", "exec frontend -- true", "logs frontend"),
    ):
        words = await weft(*command.split(), code=2, both=True)
        assert "` is in several namespaces: other, shop\nhint: choose one: other/frontend" in words, command
        meant = words.partition("hint: choose one: ")[2].partition(",")[0]
        named = meant.partition("/")[2]
        again = command.replace(f"{'deploy/' if 'deploy/' in command else ''}{named}", meant)
        assert "several namespaces" not in await weft(*again.split(), code=None, both=True), again
    assert (await weft("describe", "svc", "frontend", "-n", "shop")).startswith("Service: shop/frontend ")


async def test_log_levels_are_raised_and_reset(mesh):
    async def levels():
        into = [
            "nsenter",
            "-t",
            str(mesh.pod("frontend").pid),
            "-n",
            "curl",
            "-s",
            "-X",
            "POST",
            "127.0.0.1:15000/logging",
        ]
        said = (await asyncio.to_thread(subprocess.run, into, capture_output=True, text=True, check=True)).stdout
        return dict(line.split(": ") for line in said.strip().split("\n  ")[1:])

    before = await levels()
    assert before["rbac"] == "warning"
    shown = parsed(await weft("proxy-config", "log", POD, "--level", "rbac:debug", "-o", "json"))
    assert await levels() == {**before, "rbac": "debug"} == shown[f"{POD}.shop"]
    await weft("proxy-config", "log", POD, "--level", "rbac:warning")
    assert await levels() == before
    await weft("proxy-config", "log", POD, "--level", "debug")
    await weft("proxy-config", "log", POD, "--reset")
    assert await levels() == before
    assert "hint:" in await weft("proxy-config", "log", POD, "--level", "rbac:loud", code=1)


async def test_a_dump_file_shows_the_same_as_its_proxy(mesh, tmp_path):
    """A dump saved with curl, read later."""
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps(await envoy(mesh, "/config_dump?include_eds=true")))
    clusters = tmp_path / "clusters.json"
    clusters.write_text(json.dumps(await envoy(mesh, "/clusters?format=json")))
    for command in ("listeners", "routes", "clusters", "secret", "all"):
        assert await weft("pc", command, "--file", str(dump)) == await weft("pc", command, POD), command
    assert await weft("pc", "bootstrap", "-o", "short", "-f", str(dump)) == await weft("pc", "b", POD, "-o", "short")
    assert await weft("pc", "endpoints", "--file", str(clusters)) == await weft("pc", "endpoints", POD)
    assert await weft("x", "authz", "check", "--file", str(dump)) == await weft("x", "authz", "check", POD)
    assert await weft("proxy-status", POD, "--file", str(dump)) == await weft("proxy-status", POD)
    assert "hint:" in await weft("pc", "log", "--file", str(dump), "--level", "debug", code=2)


async def test_proxy_status_of_a_proxy_that_requests_unknown_routes(mesh):
    """A proxy that requests routes that do not exist, beside those of the demo, which have all that they requested."""
    async with grpc.aio.insecure_channel(f"unix:{socket_of(mesh.engine.name).with_name('xds.sock')}") as to:
        ask = to.stream_stream(STREAM, request_serializer=DiscoveryRequest.SerializeToString)
        asked = DiscoveryRequest(type_url=ROUTE, resource_names=["no such routes"])
        asked.node.id = "sidecar~10.244.0.1~web-0.shop~shop.svc.cluster.local"
        asked.node.metadata.update({"NAMESPACE": "shop"})
        await ask().write(asked)

        async def shown():
            head, *lines = (await weft("proxy-status")).splitlines()
            row = next((line for line in lines if line.startswith("web-0.shop ")), "")
            return {name: row[head.index(name) :].split("  ")[0] for name in ("CDS", "RDS")} if row else None

        assert await eventually(shown) == {"CDS": "IGNORED", "RDS": "NOT SENT"}
        every = {each["proxy"]: each for each in parsed(await weft("proxy-status", "-o", "json"))}
        assert every["web-0.shop"]["resources"][ROUTE]["state"] == "NOT SENT"
        assert every["frontend-0.shop"]["resources"][ROUTE]["state"] == "SYNCED"


async def test_check_inject_shows_which_pods_have_an_envoy_and_why(mesh):
    for name in ("frontend", "outsider"):
        (row,) = parsed(await weft("check-inject", f"{name}-0.shop", "-o", "json"))
        has = True
        try:
            proxy_process(mesh.pod(name))
        except StopIteration:
            has = False
        assert row["injected"] is has is (name == "frontend")
        line = (
            (mesh.directory / f"{name}.yaml").read_text().splitlines()[int(row["reason"].rpartition(":")[2][:-1]) - 1]
        )
        assert f"Workload shop/{name} ({mesh.directory}/{name}.yaml:" in row["reason"] and "apiVersion" in line
    assert "sidecar.istio.io/inject is false" in row["reason"]
    assert (await weft("x", "check-inject", "outsider")).splitlines()[1].split()[2] == "✘"


async def test_analyze_of_the_mesh_of_files_and_of_a_directory(mesh, tmp_path):
    assert await weft("analyze", "-A", both=True) == await weft("analyze", both=True)
    assert "0 errors, 0 warnings" in await weft("analyze", str(mesh.directory), both=True)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: late, namespace: shop}\nspec:\n"
        "  hosts: [catalog]\n  http:\n    - route:\n        - destination: {host: catalog, subset: v9}\n"
    )
    over = ("analyze", "-f", str(wrong), "--mesh", mesh.engine.name)
    said = await weft(*over, code=1, both=True)
    assert re.search(rf"^{wrong}:8: VirtualService shop/late: warning \[WFT0107\]: .*v9", said, re.MULTILINE)
    (found, *_) = parsed(await weft(*over, "-o", "json", code=None))
    assert (found["reference"], found["level"], found["origin"]) == (
        f"{wrong}:8",
        "Warning",
        "VirtualService late.shop",
    )
    assert await weft(*over, "--failure-threshold", "Error")  # not a failure at this threshold
    assert "nowhere.yaml does not exist\nhint: " in await weft("analyze", str(tmp_path / "nowhere.yaml"), code=2)
    await mesh.edit({"late.yaml": wrong.read_text()})
    try:
        await eventually(lambda: any("late.yaml:8" in problem for problem in mesh.problems()))
        assert re.search(r"late.yaml:8: VirtualService shop/late", await weft("analyze", code=1, both=True))
    finally:
        await mesh.edit({"late.yaml": None})


async def test_validate(mesh, tmp_path):
    assert await weft("validate", str(mesh.directory)) == ""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec:\n  ports:\n    - prt: 80\n"
    )
    said = await weft("validate", str(wrong), code=1, both=True)
    assert f"{wrong}:6: Service shop/a" in said and "hint: did you mean `port`?" in said


async def test_version_with_and_without_the_mesh(mesh):
    said = await weft("version")
    proxies = [pod for each in mesh.engine.status().workloads for pod in each.pods if pod.sync.value != "-"]
    assert f"({len(proxies)} proxies)" in said and "control plane version: " in said
    assert "control plane" not in await weft("version", "--remote=false")
    build = (await envoy(mesh, "/server_info"))["version"].split("/")[1]
    assert f"envoy version: {build} " in said
