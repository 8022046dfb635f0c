"""`weft why` and `--why`, compared with Envoy's admin API and with the lines of the files."""

from __future__ import annotations

import pytest

from e2e import looking
from e2e.looking import envoy, parsed
from e2e.objects import NAMESPACE, istio, text
from eventually import eventually

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

HOST = "app.shop.svc.cluster.local"
SECURITY = "security.istio.io/v1"


def files(control):
    made = looking.files(control)
    peers = {"selector": {"matchLabels": {"app": "app"}}, "mtls": {"mode": "STRICT"}}
    strict = {"apiVersion": SECURITY, "kind": "PeerAuthentication", "spec": peers}
    made["strict.yaml"] = "# a comment\n" + text({**strict, "metadata": {"name": "strict", "namespace": NAMESPACE}})
    pool = {"host": "ledger", "trafficPolicy": {"connectionPool": {"tcp": {"maxConnections": 7}}}}
    made["pool.yaml"] = text(istio("DestinationRule", "ledger", pool))
    return made


def line_of(mesh, file, words, after=""):
    """The first line with these words, after `after`."""
    lines = (mesh.directory / file).read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if after in line)
    return next(at for at, line in enumerate(lines, 1) if at > start and words in line)


def begin_of(mesh, file, kind):
    """The first line of an object of this kind."""
    lines = (mesh.directory / file).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line == f"kind: {kind}") - 1


async def weft(mesh, *arguments, code=0):
    """Run a command; returns its output, with files named relative to the mesh's directory."""
    said = await looking.weft(*arguments, code=code)
    return said.replace(f"{mesh.directory}/", "")


async def part(mesh, *arguments):
    """The objects of the first part in the output, and the names of its rules."""
    first = parsed(await weft(mesh, "why", *arguments, "-o", "json"))[0]["parts"][0]
    return first["sources"], [rule["name"] for rule in first["rules"]]


def sections(dump, kind, *path):
    section = next(each for each in dump["configs"] if each["@type"].endswith(f".{kind}"))
    found = []
    for item in section[path[0]]:
        for name in path[1:]:
            item = item[name]
        found.append(item)
    return found


async def test_every_cluster_and_listener_of_envoy_is_traced_to_an_object_or_a_rule(mesh):
    dump = await envoy(mesh, "app-v1", "/config_dump")
    for kind, section, path in (
        ("clusters", "ClustersConfigDump", ("dynamic_active_clusters", "cluster")),
        ("listeners", "ListenersConfigDump", ("dynamic_listeners", "active_state", "listener")),
        ("routes", "RoutesConfigDump", ("dynamic_route_configs", "route_config")),
    ):
        shown = parsed(await weft(mesh, "pc", kind, "app-v1", "--why", "-o", "json"))
        told = {each.get("name", ""): each["why"] for each in shown}  # some of the bootstrap have none
        for truth in sections(dump, section, *path):
            parts = told[truth["name"]]
            assert all(each["sources"] or each["rules"] for each in parts), truth["name"]
            assert parts[0]["rules"][0]["name"] != "bootstrap"
        for each in shown:
            positions = [one["at"] for one in each["why"] if one["at"].endswith("]") and "." not in one["at"]]
            for field in ("filter_chains", "virtual_hosts"):
                counted = [at for at in positions if at.startswith(field)]
                assert len(counted) in (0, len(each.get(field, [])))


async def test_a_cluster_is_traced_down_to_its_fields(mesh):
    cluster = f"outbound|80|v1|{HOST}"
    rule, owner = begin_of(mesh, "app.yaml", "DestinationRule"), begin_of(mesh, "app.yaml", "Service")
    subset = line_of(mesh, "app.yaml", "- name: v1", "kind: DestinationRule")
    assert await part(mesh, "client", "cluster", cluster) == (
        [
            f"DestinationRule shop/app subsets[v1] (app.yaml:{subset})",
            f"Service shop/app (app.yaml:{owner})",
        ],
        ["cluster-per-subset", "nearest-destination-rule"],
    )
    assert rule < subset
    assert await part(mesh, "client", "cluster", f"{cluster}.circuit_breakers") == (
        [],
        ["no-limits", "retry-budget"],
    )
    assert await part(mesh, "client", "cluster", f"{cluster}.transport_socket_matches") == ([], ["auto-mtls"])
    # Envoy's config for the same: no limit.
    dump = await envoy(mesh, "client", "/config_dump?mask=dynamic_active_clusters")
    found = {each["name"]: each for each in sections(dump, "ClustersConfigDump", "dynamic_active_clusters", "cluster")}
    limits = found[cluster]["circuit_breakers"]["thresholds"][0]
    assert limits["max_connections"] == 2**32 - 1
    pool = line_of(mesh, "pool.yaml", "trafficPolicy:")
    ledger = "outbound|7000||ledger.shop.svc.cluster.local"
    assert found[ledger]["circuit_breakers"]["thresholds"][0]["max_connections"] == 7
    assert await part(mesh, "client", "cluster", f"{ledger}.circuit_breakers") == (
        [f"DestinationRule shop/ledger trafficPolicy.connectionPool (pool.yaml:{pool})"],
        ["no-limits", "retry-budget"],
    )


async def test_a_route_is_traced_down_to_its_timeout(mesh):
    host = f"80.virtual_hosts[{HOST}:80]"
    first = line_of(mesh, "app.yaml", "- match", "kind: VirtualService")
    assert await part(mesh, "client", "route", f"{host}.routes[0]") == (
        [f"VirtualService shop/app (app.yaml:{first})"],
        ["routes-in-order"],
    )
    assert await part(mesh, "client", "route", f"{host}.routes[0].route.timeout") == ([], ["no-timeout"])
    assert await part(mesh, "client", "route", f"{host}.routes[0].route.retry_policy") == ([], ["retries"])
    assert await part(mesh, "client", "route", "80.virtual_hosts[allow_any]") == ([], ["allow-any"])


async def test_a_filter_chain_and_a_policy_are_traced_to_their_lines(mesh):
    words = await weft(mesh, "why", "app-v1", "virtualInbound.filter_chains")
    assert "PeerAuthentication shop/strict (strict.yaml:2)" in words
    assert "rule peer-authentication-levels: " in words
    rule = line_of(mesh, "app.yaml", "- to:", "kind: AuthorizationPolicy")
    assert f"AuthorizationPolicy shop/guard rule[0] (app.yaml:{rule})" in words
    assert "rule allow-denies-the-rest: " in words
    found, by = await part(mesh, "ledger", "virtualInbound.filter_chains[0.0.0.0_9000")
    assert {each.split(" (")[0] for each in found} == {
        f"Service shop/{name}" for name in ("ledger", "unnamed", "headless")
    }
    assert by[0] == "permissive"


async def test_each_row_has_its_source_beside_it(mesh):
    rows = (await weft(mesh, "pc", "clusters", "client", "--why", "--fqdn", HOST, "--subset", "v2")).splitlines()
    start = rows[0].index("WHY")
    subset = line_of(mesh, "app.yaml", "- name: v2", "kind: DestinationRule")
    assert rows[1][start:].startswith(f"DestinationRule shop/app subsets[v2] (app.yaml:{subset}); Service shop/app")
    rows = (await weft(mesh, "pc", "listeners", "app-v1", "--why", "--port", "15006")).splitlines()
    start = rows[0].index("WHY")
    (own,) = [row for row in rows if "Addr: *:8080" in row]
    assert own[start:].startswith("PeerAuthentication shop/strict (strict.yaml:2); Service shop/app")
    rows = (await weft(mesh, "pc", "routes", "client", "--why", "--name", "80")).splitlines()
    start = rows[0].index("WHY")
    first = line_of(mesh, "app.yaml", "- match", "kind: VirtualService")
    for path in ("/old*", "/one"):
        (row,) = [row for row in rows if f" {path} " in row]
        assert row[start:] == f"VirtualService shop/app (app.yaml:{first}) [routes-in-order]"
    rows = (await weft(mesh, "pc", "endpoints", "client", "--why", "--cluster", f"outbound|80||{HOST}")).splitlines()
    start = rows[0].index("WHY")
    made = {row[start:].split(";")[0] for row in rows[1:]}
    second = line_of(mesh, "app.yaml", "name: app-v2") - 3
    assert made == {"Workload shop/app-v1 (app.yaml:1)", f"Workload shop/app-v2 (app.yaml:{second})"}
    rows = (await weft(mesh, "pc", "secret", "client", "--why")).splitlines()
    start = rows[0].index("WHY")
    told = {row.split()[0]: row[start:] for row in rows[1:]}
    assert "workload-certificate" in told["default"] and told["ROOTCA"] == "default: mesh-roots"
    rows = (await weft(mesh, "pc", "clusters", "client", "--why", "--fqdn", "xds-grpc")).splitlines()
    assert rows[1].endswith("default: bootstrap")


async def test_a_decision_of_explain_is_shown_with_its_line(mesh):
    told = await weft(mesh, "explain", "client", "--to", "http://app/old")
    rule = line_of(mesh, "app.yaml", "- to:", "kind: AuthorizationPolicy")
    assert f"[AuthorizationPolicy shop/guard rule[0] (app.yaml:{rule})]" in told
    assert "PeerAuthentication shop/strict (strict.yaml:2)" in told


async def test_mistakes_get_a_hint(mesh, tmp_path):
    words = await weft(mesh, "why", "client", "cluster", f"outbound|80||{HOST}.circuit_braekers", code=1)
    assert "did you mean `circuit_breakers`?" in words
    dump = tmp_path / "dump.json"
    dump.write_text(await weft(mesh, "pc", "all", "client", "-o", "json"))
    assert "hint: leave out --why" in await weft(mesh, "pc", "clusters", "--file", str(dump), "--why", code=2)


async def test_a_change_is_reflected_in_the_reasons(mesh):
    await mesh.try_out(istio("Sidecar", "shut", {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}))

    async def shut():
        found = await part(mesh, "client", "virtualOutbound.filter_chains[virtualOutbound-catchall-tcp]")
        return found == (["Sidecar shop/shut (test.yaml:1)"], ["outbound-policy-of-sidecar", "nearest-sidecar"])

    await eventually(shut)
