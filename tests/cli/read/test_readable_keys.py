from base64 import b64encode

import pytest
from click.testing import CliRunner

from authority import Authority
from weft.cli.main import app

WORKLOAD = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {{name: app, namespace: shop}}
spec: {{command: [sleep, infinity]{more}}}
"""
GATEWAY = """\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: edge, namespace: shop}}
spec:
  selector: {{app: edge}}
  servers:
  - port: {{number: 443, name: https, protocol: HTTPS}}
    hosts: [a.example]
    tls:
      mode: SIMPLE
      serverCertificate: {key}
      privateKey: {key}
"""


@pytest.fixture(scope="module")
def secret():
    issued = Authority().issue("a.example")
    pairs = (("tls.crt", issued.certificate), ("tls.key", issued.key))
    data = {name: b64encode(text).decode() for name, text in pairs}
    head = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop}\ntype: kubernetes.io/tls\n"
    return f"{head}data: {data}\n"


@pytest.fixture
def mesh(tmp_path, secret):
    """A directory that all users may enter, with a Secret."""
    for parent in (tmp_path, *tmp_path.parents):
        if str(parent).startswith("/tmp/") or parent.parent == tmp_path.parent:
            parent.chmod(parent.stat().st_mode | 0o055)
    (tmp_path / "mesh.yaml").write_text(WORKLOAD.format(more=""))
    (tmp_path / "secret.yaml").write_text(secret)
    (tmp_path / "secret.yaml").chmod(0o644)
    return tmp_path


def warnings(directory, command="validate"):
    result = CliRunner().invoke(app, [command, str(directory)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return [line for line in result.stdout.splitlines() if "WFT0823" in line]


@pytest.mark.parametrize("command", ["validate", "analyze"])
def test_a_secret_in_a_file_that_all_users_can_read_is_reported(mesh, command):
    (line,) = warnings(mesh, command)
    assert line.startswith(f"{mesh}/secret.yaml:5: Secret shop/a: data: warning [WFT0823]: every user of this machine")
    assert line.endswith(f"(hint: chmod 600 {mesh}/secret.yaml)")


def test_a_closed_file_or_directory_is_in_order(mesh):
    (mesh / "secret.yaml").chmod(0o640)
    assert warnings(mesh) == []
    (mesh / "secret.yaml").chmod(0o644)
    mesh.chmod(0o700)
    assert warnings(mesh) == []


@pytest.mark.parametrize("more", ["workingDirectory: .", "mounts: [.]", "mounts: [secret.yaml]"])
def test_a_secret_in_a_closed_directory_that_a_workload_declares_is_reported(mesh, more):
    mesh.chmod(0o700)
    (mesh / "mesh.yaml").write_text(WORKLOAD.format(more=f", {more}"))
    (line,) = warnings(mesh)
    assert f"the app of Workload shop/app can read {mesh}/secret.yaml, which contains a private key" in line


def test_a_directory_beside_the_secret_shows_nothing_of_it(mesh):
    mesh.chmod(0o700)
    (mesh / "programs").mkdir()
    (mesh / "mesh.yaml").write_text(WORKLOAD.format(more=", workingDirectory: programs"))
    assert warnings(mesh) == []


def test_a_key_file_of_a_gateway_is_reported_with_the_proxys_user(mesh):
    (mesh / "secret.yaml").unlink()
    key = mesh / "key.pem"
    key.write_text("")
    key.chmod(0o644)
    (mesh / "mesh.yaml").write_text(WORKLOAD.format(more="") + "---\n" + GATEWAY.format(key=key))
    (line,) = warnings(mesh)
    assert "spec.servers[0].tls.privateKey: warning [WFT0823]" in line
    assert line.endswith(f"(hint: chown 1337 {key} && chmod 400 {key})")


def test_a_mesh_without_workloads_runs_elsewhere(mesh):
    (mesh / "mesh.yaml").unlink()
    assert warnings(mesh) == []
