import json

import pytest
from click.testing import CliRunner

from weft.cli.main import app

pytestmark = pytest.mark.root


def test_lists_every_pod_with_its_phase(weft, mesh):
    lines = weft("ps", "--mesh", mesh).stdout.splitlines()
    assert lines[0].split() == ["POD", "PHASE", "SYNC", "RESTARTS", "AGE", "PID", "ADDRESS", "MESSAGE"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["job-0", "Completed"],
        ["talker-0", "Ready"],
        ["talker-1", "Ready"],
    ]


def test_the_only_mesh_need_not_be_named(weft, mesh):
    assert weft("ps").stdout.count("talker-") == 2


def test_wide_shows_what_a_proxy_needs(weft, mesh):
    assert " MB " in weft("ps", "-o", "wide", "--mesh", mesh).stdout


def test_several_meshes_are_distinguished_by_a_column(weft, mesh, mesh_directory):
    other = f"{mesh}-b"
    try:
        assert weft("up", mesh_directory, "--name", other, "--detach").returncode == 0
        everything = weft("ps")
        assert everything.stderr == ""
        heading, *rows = (line.split()[:2] for line in everything.stdout.splitlines())
        assert heading == ["MESH", "POD"]
        assert sorted(rows) == sorted(
            [each, pod] for each in (mesh, other) for pod in ("job-0", "talker-0", "talker-1")
        )
        found = {(pod["mesh"], pod["name"]) for pod in json.loads(weft("ps", "-o", "json").stdout)}
        assert {(mesh, "talker-0"), (other, "talker-0")} <= found
        only = weft("ps", other).stdout
        assert "MESH" not in only and only.count("talker-") == 2
        assert weft("ps", "--mesh", other).stdout.count("talker-") == 2
    finally:
        weft("down", other)


def test_json_is_for_programs(weft, mesh):
    pods = {pod["name"]: pod for pod in json.loads(weft("ps", "-o", "json").stdout)}
    assert pods["talker-0"]["pid"] > 1
    assert pods["job-0"]["exit_code"] == 0


def test_an_unknown_mesh_is_an_error_with_a_hint(weft, mesh):
    result = weft("ps", "--mesh", f"{mesh}x")
    assert result.returncode == 1
    assert f"hint: did you mean `{mesh}`?" in result.stderr


def test_no_running_mesh_is_no_error_and_prints_a_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["ps"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "no mesh is running\nhint: start one with: weft up DIR\nhint: on a cluster: weft proxy-status --kubernetes\n"
    )


def test_a_pod_name_is_a_usage_error_with_a_hint_to_proxy_status(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["ps", "web-0.shop"])
    assert result.exit_code == 2
    assert result.stderr == "error: no mesh is named `web-0.shop`\nhint: for a pod: weft proxy-status web-0.shop\n"
