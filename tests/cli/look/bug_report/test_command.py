"""A report of a real mesh, searched for secrets that must not be in it."""

import base64
import json
import os
import subprocess
import sys
import tarfile

import pytest

from weft.base.key_search import kinds_of_keys

pytestmark = pytest.mark.root


def contents(path):
    """Return the files of the archive by name, without the archive's own directory."""
    with tarfile.open(path) as archive:
        return {each.name.partition("/")[2]: archive.extractfile(each).read() for each in archive}


@pytest.fixture(scope="module")
def made(weft, mesh, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.tar.gz"
    done = weft("bug-report", "-o", path, "--mesh", mesh)
    assert done.returncode == 0, done.stderr
    return done, path


def test_the_path_is_on_stdout_and_the_progress_on_stderr(made):
    done, path = made
    assert done.stdout == f"{path}\n"
    assert "proxy 1 of 2: talker-0.shop" in done.stderr and "check the archive before you share it" in done.stderr
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_directory_may_be_given_and_the_name_has_the_time(weft, mesh, tmp_path):
    done = weft("bug-report", "--dir", tmp_path, "--mesh", mesh)
    (path,) = tmp_path.iterdir()
    assert done.stdout == f"{path}\n" and path.name.startswith("weft-bug-report-")
    lost = weft("bug-report", "--output-dir", tmp_path / "no", "--mesh", mesh)
    assert lost.returncode == 1 and "No such file" in lost.stderr


def test_everything_that_is_needed_is_in_it(made, mesh):
    files = contents(made[1])
    assert "left-out.txt" not in files, files["left-out.txt"]
    assert json.loads(files["status.json"])["name"] == mesh and json.loads(files["versions.json"])["version"]
    assert [each["proxy"] for each in json.loads(files["control/syncz.json"])[mesh]] == [
        "talker-0.shop",
        "talker-1.shop",
    ]
    dump = json.loads(files["proxies/talker-0.shop/config_dump.json"])
    kinds = {each["@type"].rpartition(".")[2] for each in dump["configs"]}
    assert {"BootstrapConfigDump", "ClustersConfigDump", "EndpointsConfigDump", "SecretsConfigDump"} <= kinds
    assert b"15006" in files["proxies/talker-0.shop/iptables-save.txt"]
    assert b"live" in files["proxies/talker-0.shop/server_info.txt"].lower()
    assert {"problems.txt", "proxies/talker-1.shop/proxy.log", "machine/uname--a.txt", "machine/sysctl.txt"} <= set(
        files
    )


def test_no_key_and_no_environment_is_in_it(made):
    files = contents(made[1])
    assert len(files) > 20
    for name, data in files.items():
        assert kinds_of_keys(data) == () and b"PRIVATE KEY" not in data, name
        assert b"GREETING" not in data, name


def test_what_applications_print_stays_theirs(made):
    assert not [name for name, data in contents(made[1]).items() if b"talker-0 speaks" in data]


def test_a_namespace_without_a_proxy_is_reported(weft, mesh, tmp_path):
    done = weft("bug-report", "-n", "shp", "-o", tmp_path / "report.tar.gz", "--mesh", mesh)
    assert (
        "no proxy is in namespace shp, so the report has no proxies\nhint: there are proxies in shop\n" in done.stderr
    )
    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        assert not [name for name in archive.getnames() if "/proxies/" in name]


def test_an_existing_file_is_not_overwritten(weft, mesh, made):
    done = weft("bug-report", "-o", made[1], "--mesh", mesh)
    assert (done.returncode, done.stdout) == (1, "") and "File exists" in done.stderr


def test_without_a_mesh_there_is_still_the_machine(weft, tmp_path):
    environment = {**weft.environment, "WEFT_RUN_DIR": str(tmp_path), "HOME": str(tmp_path)}
    environment.pop("KUBECONFIG", None)
    command = [sys.executable, "-m", "weft.cli", "bug-report", "-o", str(tmp_path / "x.tar.gz")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "no mesh is included" in done.stderr
    assert "versions.json" in contents(tmp_path / "x.tar.gz")


def test_a_cluster_report_reads_no_secret_and_lists_pods_that_do_not_respond(cluster_cli, tmp_path):
    server = cluster_cli.server
    name = f"bug-report-{os.getpid()}"
    server.make_namespace(name)
    server.make_default_account(name)
    hidden = "s3cr3t-of-the-cluster"
    secret = {"metadata": {"name": "hidden"}, "stringData": {"password": hidden}}
    server.request("POST", f"/api/v1/namespaces/{name}/secrets", secret)
    containers = [{"name": each, "image": "x", "env": [{"name": "PASSWORD", "value": hidden}]} for each in
                  ("app", "istio-proxy")]  # fmt: skip
    pod = {"metadata": {"name": "web"}, "spec": {"containers": containers}}
    server.request("POST", f"/api/v1/namespaces/{name}/pods", pod)
    path = tmp_path / "report.tar.gz"
    done = cluster_cli("bug-report", "-o", path, "-n", name)
    assert done.returncode == 0, done.stderr
    files = contents(path)
    assert f"{name}/web Pending on -, 0 restarts, app istio-proxy: x x\n".encode() in files["pods.txt"]
    assert b"control/syncz.json" in files["left-out.txt"] and f"web.{name}.log".encode() in files["left-out.txt"]
    encoded = base64.b64encode(hidden.encode())
    for data in files.values():
        assert hidden.encode() not in data and encoded not in data and server.token.encode() not in data
        assert kinds_of_keys(data) == ()


SECRETIVE = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: shop, labels: {app: web}, annotations: {example.com/api-token: hidden-annotation}}
spec: {command: [sleep, "600"], env: {DB_PASSWORD: hidden-variable}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - match: [{headers: {x-api-key: {exact: hidden-match}}}]
    headers:
      request: {set: {authorization: Basic hidden-basic, x-client-secret: hidden-header, x-version: shown}}
      response: {add: {set-cookie: id=hidden-cookie}}
    route: [{destination: {host: web}}]
  - redirect: {uri: "/login?code=hidden-query"}
"""


def test_secret_header_values_of_virtual_services_are_not_in_it(weft, tmp_path):
    (tmp_path / "mesh").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    (tmp_path / "mesh" / "mesh.yaml").write_text(SECRETIVE)
    name = f"secretive-{os.getpid()}"
    started = weft("up", tmp_path / "mesh", "--name", name, "--detach")
    try:
        assert started.returncode == 0, started.stderr
        done = weft("bug-report", "-o", tmp_path / "report.tar.gz", "--mesh", name)
        assert done.returncode == 0, done.stderr
    finally:
        weft("down", name)
    files = contents(tmp_path / "report.tar.gz")
    dump = files["proxies/web-0.shop/config_dump.json"]
    assert b"x-client-secret" in dump and b"shown" in dump  # the header is there, without its value
    assert {where for where, data in files.items() if b"hidden-" in data} == set()
