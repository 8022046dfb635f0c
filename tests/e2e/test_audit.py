"""The output of audit, bug report and version, compared with the wire, Envoy's admin API and the kernel."""

from __future__ import annotations

import json
import tarfile
from datetime import datetime

import pytest

from e2e.looking import envoy
from e2e.objects import http_service, text, to, virtual_service, workload
from eventually import eventually
from weft.base.key_search import kinds_of_keys

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJzb21lYm9keSJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
OPAQUE = "0123456789abcdef0123456789"
PASSWORD = "correct-horse-battery"
BARE = {"sidecar.istio.io/inject": "false"}


def policy(name, mode, app=""):
    spec = {"mtls": {"mode": mode}} | ({"selector": {"matchLabels": {"app": app}}} if app else {})
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication", "metadata": metadata, "spec": spec}


def refuses(header, value):
    spec = {
        "action": "DENY",
        "selector": {"matchLabels": {"app": "closed"}},
        "rules": [{"when": [{"key": f"request.headers[{header}]", "values": [value]}]}],
    }
    metadata = {"name": "stolen", "namespace": "shop"}
    return {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": metadata, "spec": spec}


def files(control):
    secret = {"request": {"set": {"authorization": f"Bearer {TOKEN}", "x-api": f"Bearer {OPAQUE}"}}}
    return {
        "client.yaml": text(workload("client", control=control)),
        "bare.yaml": text(workload("bare", control=control, labels=BARE)),
        "app.yaml": text(
            workload("open", control=control, serve="http=8080"),
            workload("closed", control=control, serve="http=8080"),
            http_service("open"),
            http_service("closed"),
            virtual_service("closed", {"headers": secret, "route": [to("closed")]}),
            refuses("x-password", PASSWORD),
        ),
        "policies.yaml": text(
            policy("all", "STRICT"), policy("open", "PERMISSIVE", "open"), policy("lost", "STRICT", "x")
        ),
    }


async def audited(mesh):
    code, said, words = await mesh.weft("audit", "-o", "json")
    assert words.startswith(f"mesh {mesh.engine.name}: "), words
    report = json.loads(said)
    return code, {each["name"]: each for each in report["sections"]}, report


async def in_plaintext(mesh, workload):
    answer = await mesh.get("bare", f"http://{mesh.pod(workload).addresses[0]}:8080/")
    return answer["status"] == 200


async def test_plaintext_is_found_where_the_wire_accepts_it_and_nowhere_else(mesh):
    code, sections, _ = await audited(mesh)
    (found,) = sections["plaintext"]["findings"]
    assert code == 1 and found["what"].startswith("open of namespace shop accepts plaintext beside mutual TLS")
    assert found["where"]["object"] == "PeerAuthentication shop/open"
    line = (mesh.directory / "policies.yaml").read_text().splitlines()[found["where"]["line"] - 1]
    assert found["where"]["file"].endswith("policies.yaml") and line.strip() == "mode: PERMISSIVE"
    command = found["hint"].rpartition("see: weft ")[2]
    assert "PERMISSIVE" in (await mesh.weft(*command.split()))[1]
    assert [await in_plaintext(mesh, each) for each in ("open", "closed")] == [True, False]


async def test_workloads_without_a_proxy_and_policies_that_select_no_workload_are_reported(mesh):
    _, sections, _ = await audited(mesh)
    (found,) = sections["without-proxy"]["findings"]
    assert (found["where"]["object"], found["severity"]) == ("Workload shop/bare", "info")
    (found,) = sections["policies"]["findings"]
    assert (found["where"]["object"], found["code"]) == ("PeerAuthentication shop/lost", "WFT0503")
    assert sections["namespaces"]["told"][0].startswith("shop: 3 of 4 pods with a proxy")


async def test_certificates_and_memory_are_those_that_envoy_and_the_kernel_report(mesh):
    _, sections, report = await audited(mesh)
    ends = []
    for name in ("client", "open", "closed"):
        certs = await envoy(mesh, name, "/certs")
        ends += [each["cert_chain"][0]["expiration_time"] for each in certs["certificates"] if each.get("cert_chain")]
    first = min(map(datetime.fromisoformat, ends))
    assert sections["certificates"]["told"][0].startswith(
        f"3 certificates of proxies, the first expires at {first:%F %T} UTC"
    )
    rows = {each["workload"]: each for each in report["memory"]}
    assert set(rows) == {"client", "open", "closed"}
    for name, row in rows.items():
        measured = mesh.engine.find_pod(name).proxy.memory()
        assert 0.5 < row["proxy"] / measured < 2 and row["sharing"] == 3
        assert row["share"] == pytest.approx(row["proxy"] / row["application"])


async def test_a_fixed_problem_is_no_longer_reported(mesh):
    mended = text(policy("all", "STRICT"))
    before = (mesh.directory / "policies.yaml").read_text()
    await mesh.edit({"policies.yaml": mended})

    async def is_well():
        return (await audited(mesh))[0] == 0

    await eventually(is_well)
    await mesh.edit({"policies.yaml": before})


async def test_a_report_holds_what_proxies_have_and_none_of_the_secrets(mesh, tmp_path):
    raw = json.dumps([await envoy(mesh, each, "/config_dump") for each in ("client", "closed")])
    assert all(each in raw for each in (TOKEN, OPAQUE, PASSWORD))  # Envoy cannot know that these are secret
    # At this level Envoy logs every header of a request.
    await mesh.weft("proxy-config", "log", "closed", "--level", "rbac:debug")
    await mesh.get("client", "http://closed/?q=1", headers={"x-password": PASSWORD})
    await eventually(lambda: any(PASSWORD in line for line in mesh.engine.find_pod("closed").log.proxy.tail(None)))
    await mesh.weft("proxy-config", "log", "closed", "--reset")
    code, said, words = await mesh.weft("bug-report", "-o", str(tmp_path / "report.tar.gz"))
    assert (code, said) == (0, f"{tmp_path / 'report.tar.gz'}\n"), words
    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        held = {each.name.partition("/")[2]: archive.extractfile(each).read() for each in archive}
    routes = held["proxies/client-0.shop/config_dump.json"]
    assert b"closed.shop.svc.cluster.local" in routes and b"Bearer [redacted]" in routes
    for name, data in held.items():
        assert not [each for each in (TOKEN, OPAQUE, PASSWORD) if each.encode() in data], name
        assert kinds_of_keys(data) == (), name
    assert b"'x-password', '[redacted]'" in held["proxies/closed-0.shop/proxy.log"]


async def test_the_versions_are_those_of_the_running_control_plane_and_proxies(mesh):
    _, said, _ = await mesh.weft("version", "-o", "json")
    versions = json.loads(said)
    node = (await envoy(mesh, "client", "/server_info"))["node"]
    assert {each["ID"]: each["IstioVersion"] for each in versions["dataPlaneVersion"]} == {
        f"{name}-0.shop": node["metadata"]["ISTIO_VERSION"] for name in ("client", "open", "closed")
    }
    assert [each["Replica"] for each in versions["meshVersion"]] == [mesh.engine.name]
