"""`weft proxy-config` on a mesh of this machine, compared with Envoy's admin API in each pod."""

from __future__ import annotations

import json

import pytest
import yaml

from e2e import looking
from e2e.looking import cells, envoy, parsed, rows, weft

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

files = looking.files
HOST = "app.shop.svc.cluster.local"


def messages(dump, kind, *paths):
    section = next(each for each in dump["configs"] if each["@type"].endswith(f".{kind}"))
    found = []
    for listed, *inner in paths:
        for item in section.get(listed, []):
            for name in inner:
                item = item[name]
            found.append(item)
    return found


async def test_clusters_are_all_that_envoy_has(mesh):
    shown = rows(await weft("proxy-config", "clusters", "client"))
    assert shown[0] == ["SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE"]
    truth = (await envoy(mesh, "client", "/clusters?format=json"))["cluster_statuses"]
    names = [f"{row[3]}|{row[1]}|{row[2].strip('-')}|{row[0]}" if row[1] != "-" else row[0] for row in shown[1:]]
    assert sorted(names) == sorted(each["name"] for each in truth)
    assert [HOST, "80", "v2", "outbound", "EDS", "app.shop"] in shown


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--fqdn", HOST], {(HOST, "80", "-"), (HOST, "80", "v1"), (HOST, "80", "v2")}),
        (["--fqdn", HOST, "--subset", "v1"], {(HOST, "80", "v1")}),
        (["--port", "7000"], {("ledger.shop.svc.cluster.local", "7000", "-")}),
        (["--port", "1"], set()),
    ],
)
async def test_clusters_can_be_filtered(mesh, filters, expected):
    assert {tuple(row[:3]) for row in cells(await weft("pc", "c", "client", *filters))} == expected


async def test_whole_clusters_are_those_of_envoys_dump(mesh):
    wanted = f"outbound|80|v1|{HOST}"
    dump = await envoy(mesh, "client", "/config_dump")
    truth = [
        each
        for each in messages(dump, "ClustersConfigDump", ("dynamic_active_clusters", "cluster"))
        if each["name"] == wanted
    ]
    arguments = ["pc", "c", "client", "--fqdn", HOST, "--subset", "v1", "-o"]
    assert parsed(await weft(*arguments, "json")) == truth
    assert yaml.safe_load(await weft(*arguments, "yaml")) == truth


async def test_listeners_are_all_that_envoy_listens_on(mesh):
    shown = cells(await weft("proxy-config", "listeners", "app-v1"))
    truth = (await envoy(mesh, "app-v1", "/listeners?format=json"))["listener_statuses"]
    sockets = {
        (address["socket_address"]["address"], str(address["socket_address"]["port_value"]))
        for each in truth
        for address in [each["local_address"], *(more for more in each.get("additional_local_addresses", ()))]
    }
    assert {(address, row[1]) for row in shown for address in row[0].split(",")} == sockets
    # One route for idempotent requests, one for the rest: istioctl shows them so, too.
    assert any(row[1:] == ["15006", "Trans: raw_buffer; Addr: *:8080", "Inline Route: /*, /*"] for row in shown)


async def test_listeners_can_be_filtered(mesh):
    assert {row[1] for row in cells(await weft("pc", "l", "client", "--port", "7000"))} == {"7000"}
    brief = cells(await weft("pc", "l", "client", "--type", "TCP", "--brief"))
    assert brief and {row[2] for row in brief} == {"TCP"}
    whole = parsed(await weft("pc", "l", "client", "--port", "15001", "-o", "json"))
    assert [each["name"] for each in whole] == ["virtualOutbound"]


async def test_routes_name_the_virtual_service_behind_them(mesh):
    shown = cells(await weft("proxy-config", "routes", "client", "--name", "80"))
    of_app = [(row[3], row[4]) for row in shown if row[1] == f"{HOST}:80"]
    assert sorted(of_app) == [
        ("/*", "app.shop"),
        ("/old*", "app.shop"),
        ("/one", "app.shop"),
        ("regex /v[0-9]+/.*", "app.shop"),
    ]
    dump = await envoy(mesh, "client", "/config_dump")
    truth = [
        each
        for each in messages(dump, "RoutesConfigDump", ("dynamic_route_configs", "route_config"))
        if each["name"] == "80"
    ]
    assert parsed(await weft("pc", "r", "client", "--name", "80", "-o", "json")) == truth


async def test_endpoints_are_the_pods_and_how_envoy_finds_them(mesh):
    cluster = f"outbound|80||{HOST}"
    shown = cells(await weft("proxy-config", "endpoints", "client", "--cluster", cluster))
    pods = [mesh.pod("app-v1"), mesh.pod("app-v2")]
    assert {row[0] for row in shown} == {f"{pod.addresses[0]}:8080" for pod in pods}
    assert {tuple(row[1:]) for row in shown} == {("HEALTHY", "OK", cluster)}
    everything = cells(await weft("pc", "ep", "client"))
    truth = (await envoy(mesh, "client", "/clusters?format=json"))["cluster_statuses"]
    assert len(everything) == sum(len(each.get("host_statuses", ())) for each in truth)
    assert cells(await weft("pc", "e", "client", "--status", "unhealthy")) == []
    assert {row[0] for row in cells(await weft("pc", "ep", "client", "--address", "192.0.2.7", "--port", "443"))} == {
        "192.0.2.7:443"
    }


async def test_secrets_are_those_that_envoy_uses_and_no_key_is_shown(mesh):
    shown = rows(await weft("proxy-config", "secret", "client-0"))
    assert shown[0] == [
        "RESOURCE NAME",
        "TYPE",
        "STATUS",
        "VALID CERT",
        "SERIAL NUMBER",
        "NOT AFTER",
        "NOT BEFORE",
        "TRUST DOMAIN",
    ]
    own, root = shown[1:]
    assert own[:4] == ["default", "Cert Chain", "ACTIVE", "true"] and own[7] == "cluster.local"
    assert root[:4] == ["ROOTCA", "CA", "ACTIVE", "true"]
    truth = (await envoy(mesh, "client", "/certs"))["certificates"]
    chains = {chain["serial_number"].zfill(32) for each in truth for chain in each["cert_chain"]}
    assert own[4] in chains
    whole = await weft("pc", "s", "client-0", "-o", "json")
    assert "PRIVATE KEY" not in whole and json.loads(whole)["dynamic_active_secrets"][0]["secret"]["tls_certificate"][
        "private_key"
    ] == {"inline_bytes": "W3JlZGFjdGVkXQ=="}


async def test_bootstrap_is_what_envoy_was_started_with(mesh):
    dump = await envoy(mesh, "client", "/config_dump?mask=bootstrap")
    shown = parsed(await weft("proxy-config", "bootstrap", mesh.pod("client").name))
    assert shown["bootstrap"]["node"]["id"] == dump["configs"][0]["bootstrap"]["node"]["id"]
    version = (await envoy(mesh, "client", "/server_info"))["version"].split("/")[1]
    assert f"Envoy Version: {version}/" in (await weft("pc", "b", "client", "-o", "short")).replace("   ", " ")


async def test_levels_of_the_log_are_set_and_reset_in_envoy(mesh):
    async def logged():
        said = (await mesh.tell("client", "http", url="http://127.0.0.1:15000/logging", method="POST"))[0]
        return said["text"] if "text" in said else str(said["body"])

    await weft("proxy-config", "log", mesh.pod("client").name, "--level", "rbac:debug,info")
    assert "rbac: debug" in await logged() and "http: info" in await logged()
    await weft("proxy-config", "log", mesh.pod("client").name, "--reset")
    assert "rbac: warning" in await logged() and "misc: error" in await logged()


async def test_all_of_it_is_every_table_and_the_whole_dump(mesh):
    shown = await weft("proxy-config", "all", "client", "--with-headers")
    for title in ("BOOTSTRAP", "CLUSTER", "LISTENER", "ROUTE", "SECRET", "ENDPOINTS"):
        assert f"------ {title} INFO ------" in shown
    assert f"cluster/outbound|80|v2|{HOST}" in shown and f"endpoint/{mesh.pod('app-v1').addresses[0]}:8080" in shown
    whole = parsed(await weft("pc", "a", "client", "-o", "json"))
    truth = await envoy(mesh, "client", "/config_dump?include_eds=true")
    assert [each["@type"] for each in whole["configs"]] == [each["@type"] for each in truth["configs"]]


async def test_a_file_shows_what_its_proxy_showed(mesh, tmp_path):
    dump, clusters = tmp_path / "dump.json", tmp_path / "clusters.json"
    pod = mesh.pod("client").name
    dump.write_text(await weft("pc", "all", pod, "-o", "json"))
    clusters.write_text(json.dumps({"cluster_statuses": parsed(await weft("pc", "ep", pod, "-o", "json"))}))
    for command in ("listeners", "routes", "clusters", "secret", "all"):
        assert await weft("pc", command, "--file", str(dump)) == await weft("pc", command, pod), command
    of_file, live = await weft("pc", "bootstrap", "--file", str(dump)), await weft("pc", "bootstrap", pod)
    assert parsed(of_file) == parsed(live)  # Envoy writes maps in random order
    assert await weft("pc", "endpoints", "--file", str(clusters)) == await weft("pc", "endpoints", pod)


@pytest.mark.parametrize(
    "word", ["app-v1-0", "app-v1-0.shop", "deploy/app-v1", "app-v1", "shop/app-v1", "app-v1 -n shop"]
)
async def test_a_proxy_is_found_by_each_form_of_its_name(mesh, word):
    shown = await weft("pc", "c", *word.split(), "--direction", "inbound")
    assert [row[1] for row in cells(shown)] == ["8080"]
