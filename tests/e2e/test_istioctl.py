"""The real istioctl reads the dumps of weft's proxies, and its tables match weft's, row by row."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess

import pytest
import pytest_asyncio

from e2e import looking
from e2e.looking import envoy, rows, weft

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

files = looking.files
WORKLOADS = ["client", "app-v1", "ledger"]
# istioctl requires a kubeconfig even for a file; it never connects to this cluster.
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "users": [{"name": "none", "user": {}}],
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def dumps(whole_mesh, tmp_path_factory):
    """For each workload its config dump and its endpoints, as curl gets them."""
    directory = tmp_path_factory.mktemp("dumps")
    for name in WORKLOADS:
        dump = await envoy(whole_mesh, name, "/config_dump?include_eds=true")
        (directory / f"{name}.json").write_text(json.dumps(dump))
        clusters = await envoy(whole_mesh, name, "/clusters?format=json")
        (directory / f"{name}-clusters.json").write_text(json.dumps(clusters))
    (directory / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    return directory


@pytest.fixture
def both(istioctl, dumps):
    """The output of istioctl and of weft for the same arguments."""

    async def run(*words: str, file: str) -> tuple[str, str]:
        given = [*words, "--file", str(dumps / file)]
        command = [str(istioctl), "proxy-config", *given, "--kubeconfig", str(dumps / "kubeconfig")]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, await weft("proxy-config", *given)

    return run


def same(theirs: str, ours: str) -> None:
    """The same headings and the same rows; istioctl does not define the order of equal rows."""
    expected, shown = rows(theirs), rows(ours)
    assert shown[0] == expected[0]
    assert sorted(shown[1:]) == sorted(expected[1:])
    assert len(shown) > 1


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("command", ["clusters", "listeners", "routes", "endpoints"])
async def test_tables_are_the_same(both, command, workload):
    file = f"{workload}-clusters.json" if command == "endpoints" else f"{workload}.json"
    same(*await both(command, file=file))


@pytest.mark.parametrize(
    "words",
    [
        "clusters --fqdn app.shop.svc.cluster.local --subset v1",
        "clusters --direction outbound --port 7000",
        "listeners --port 15006",
        "listeners --type TCP",
        "listeners --address 0.0.0.0 --type HTTP+TCP",
        "routes --name 80",
        "endpoints --port 8080",
        "endpoints --status healthy --cluster outbound|80||app.shop.svc.cluster.local",
    ],
)
async def test_filters_select_the_same_rows_as_istioctl(both, words):
    file = "client-clusters.json" if words.startswith("endpoints") else "client.json"
    same(*await both(*words.split(), file=file))


async def test_ordered_rows_have_the_order_of_istioctl(both):
    theirs, ours = await both("clusters", file="client.json")
    assert [row[:4] for row in rows(ours)] == [row[:4] for row in rows(theirs)]


async def test_secrets_are_the_same_and_weft_knows_the_trust_domain(both):
    theirs, ours = (rows(each) for each in await both("secret", file="client.json"))
    width = len(theirs[0])
    assert [row[:width] for row in ours] == theirs
    assert ours[0][-1] == "TRUST DOMAIN"


async def test_versions_are_the_same(both):
    theirs, ours = await both("bootstrap", "-o", "short", file="client.json")
    assert [line.split() for line in ours.splitlines()] == [line.split() for line in theirs.splitlines()]


async def test_all_tables_are_the_same_as_those_of_istioctl(both):
    """Section by section: empty lines separate the tables."""
    theirs, ours = (
        [part for part in each.split("\n\n") if part.strip()] for each in await both("all", file="client.json")
    )
    assert len(ours) == len(theirs) == 6
    assert [line.split() for line in ours[0].splitlines()] == [line.split() for line in theirs[0].splitlines()]
    # For a name without parts, istioctl's second column repeats the prefix of the first.
    theirs[1] = re.sub(r"(?<= )cluster/(\S+)", r"\1        ", theirs[1])
    for index in (1, 2, 3, 5):
        same(theirs[index], ours[index])


@pytest.mark.parametrize("command", ["clusters", "listeners", "routes"])
async def test_whole_resources_are_the_same(both, command):
    """istioctl spells fields as in protobuf's JSON mapping, and leaves out defaults."""
    theirs, ours = (json.loads(each) for each in await both(command, "-o", "json", file="client.json"))
    assert sorted(each.get("name", "") for each in ours) == sorted(each.get("name", "") for each in theirs)


async def test_filters_that_were_sent_by_themselves_are_the_same(both, dumps):
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    extension = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
    sent = [{"ecds_filter": {"@type": extension, "name": name, "typed_config": router}} for name in ("b", "a")]
    for filters in (sent, []):
        section = {"@type": "type.googleapis.com/envoy.admin.v3.EcdsConfigDump", "ecds_filters": filters}
        (dumps / "ecds.json").write_text(json.dumps({"configs": [section]}))
        theirs, ours = await both("ecds", file="ecds.json")
        assert ours == theirs
