"""The messages of the command line; the running daemon is tested in tests/node/test_daemon.py."""

import pytest
from click.testing import CliRunner

from authority import Authority
from weft.cli.main import app


@pytest.fixture
def run(tmp_path):
    roots = tmp_path / "root-cert.pem"
    roots.write_bytes(Authority().root)

    def invoke(*arguments: str) -> tuple[int, str]:
        given = ["node", "--kubernetes", "--ca-root", str(roots), *arguments]
        done = CliRunner().invoke(app, given, env={"NODE_NAME": None})
        return done.exit_code, done.output

    return invoke


def test_a_node_must_have_a_name(run):
    code, said = run()
    assert code == 2 and "NODE_NAME" in said


def test_options_for_machines_without_kubernetes_are_rejected(run, tmp_path):
    code, said = run("--node-name", "w", "--workloads", str(tmp_path))
    assert code == 2 and "without Kubernetes" in said


def test_unreadable_roots_are_an_error(run, tmp_path):
    code, said = run("--node-name", "w", "--ca-root", str(tmp_path / "none.pem"))
    assert code == 1 and "istio-ca-root-cert" in said


def test_a_directory_that_is_not_kubelets_is_an_error(run, tmp_path):
    code, said = run("--node-name", "w", "--kubelet-root", str(tmp_path / "nowhere"), "--health", "127.0.0.1:0")
    assert code == 1 and "--kubelet-root" in said and "nowhere" in said


def test_an_invalid_address_is_an_error(run):
    code, said = run("--node-name", "w", "--health", "here")
    assert code == 2 and "`here` is not an address" in said
