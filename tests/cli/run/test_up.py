import os
import subprocess
import sys
from datetime import timedelta

import pytest
from click.testing import CliRunner

from weft.base.problem import Problem, Where
from weft.ca.authority import Authority
from weft.cli.main import app
from weft.cli.run.background import _flags
from weft.local.identities import Trust


def test_a_missing_directory_is_an_error_before_anything_is_created(tmp_path):
    result = CliRunner().invoke(app, ["up", str(tmp_path / "no")])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'no'} does not exist\nhint: ")


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file.yaml").write_text("")
    assert "is not a directory" in CliRunner().invoke(app, ["up", str(tmp_path / "file.yaml")]).stderr


def test_missing_root_privileges_are_an_error_with_a_hint(tmp_path, monkeypatch):
    missing = [
        Problem(Where(), "this process lacks CAP_NET_ADMIN", "sudo weft up"),
        Problem(Where(file="/run"), "this user cannot write to the directory", "sudo weft up"),
    ]
    monkeypatch.setattr("weft.cli.run.foreground.missing_privileges", lambda: missing)
    monkeypatch.setattr("sys.argv", ["weft", "up", "DIR"])
    monkeypatch.setenv("PATH", "")
    for how in ([], ["--detach"]):
        result = CliRunner().invoke(app, ["up", str(tmp_path), *how])
        assert result.exit_code == 1
        first, second, hint = result.stderr.splitlines()
        assert first == "error: this process lacks CAP_NET_ADMIN"
        assert second.strip() == "/run: this user cannot write to the directory"
        assert hint == "hint: sudo weft up DIR"


def test_a_certificate_that_would_live_too_short_or_too_long_or_no_time_at_all_is_refused(tmp_path):
    for ttl, why in (
        ("1s", "must be from 2 s to 90 days"),
        ("91d", "must be from 2 s to 90 days"),
        ("soon", "is not a duration"),
    ):
        result = CliRunner().invoke(app, ["up", str(tmp_path), "--certificate-ttl", ttl])
        assert result.exit_code == 2 and why in result.stderr


def test_an_invalid_ca_is_reported_in_two_lines_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.cli.run.foreground.missing_privileges", list)
    monkeypatch.setattr("weft.cli.run.foreground.tell_of_killed", lambda name: pytest.fail("it went on"))
    monkeypatch.setattr("weft.cli.run.background.run_background", lambda *_, **__: pytest.fail("it went on"))
    garbage, keyless, file = tmp_path / "garbage", tmp_path / "keyless", tmp_path / "file"
    file.write_text("")
    for directory in (garbage, keyless):
        directory.mkdir()
    (garbage / "ca-cert.pem").write_text("not a certificate")
    Authority.open(keyless, "cluster.local").close()
    (keyless / "bundle.pem").rename(keyless / "ca-cert.pem")
    for ca, why in (
        (garbage, f"{garbage}/ca-cert.pem: the file contains no certificates in PEM"),
        (keyless, f"{keyless}/ca-key.pem: the file does not exist"),
        (file, f"{file}: this is not a directory"),
    ):
        for how in ([], ["--detach"]):
            result = CliRunner().invoke(app, ["up", str(tmp_path), "--ca", str(ca), *how])
            assert result.exit_code == 1
            what, hint = result.stderr.splitlines()
            assert what == f"error: {why}" and hint.startswith("hint: ")


def test_how_the_mesh_vouches_for_its_pods_reaches_the_engine_in_the_foreground_and_the_background(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    got = []
    monkeypatch.setattr("weft.cli.run.foreground.missing_privileges", list)
    monkeypatch.setattr("weft.cli.run.foreground.run_foreground", lambda *_, trust, **__: got.append(trust))
    flags = ["--ca", "ca", "--certificate-ttl", "90s"]
    assert CliRunner().invoke(app, ["up", ".", *flags]).exit_code == 0
    assert got == [Trust(tmp_path / "ca", timedelta(seconds=90))]
    assert _flags(got[0]) == ["--ca", str(tmp_path / "ca"), "--certificate-ttl", "90.000s"]
    assert CliRunner().invoke(app, ["up", ".", *_flags(got[0])]).exit_code == 0
    assert got[1] == got[0]


def test_history_requires_a_directory_that_only_the_owner_can_access(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    result = CliRunner().invoke(app, ["up", str(tmp_path), "--history", str(tmp_path / "open")])
    assert result.exit_code == 1
    assert f"{tmp_path / 'open'} is not a directory that only you can access" in result.stderr
    assert _flags(Trust(), tmp_path)[:2] == ["--history", str(tmp_path)]


@pytest.mark.root
def test_a_restarted_mesh_keeps_its_history_in_the_given_directory(weft, tmp_path):
    mesh, name = tmp_path / "mesh", f"past-{os.getpid()}"
    mesh.mkdir()
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{name: http, port: %d}]}\n"
    (mesh / "a.yaml").write_text(service % ("a", 80))
    for text in (service % ("a", 81), service % ("a", 82)):
        started = weft("up", mesh, "--name", name, "--detach", "--history", tmp_path / "past")
        assert started.returncode == 0, started.stderr
        assert weft("down", name).returncode == 0
        (mesh / "a.yaml").write_text(text)
    weft("up", mesh, "--name", name, "--detach", "--history", tmp_path / "past")
    try:
        shown = weft("history", "--mesh", name)
        assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == ["@1", "@2"], shown.stderr
        assert "Service default/a changed (" in shown.stdout
        before = weft("diff", "@0", "@1", "--mesh", name)
        assert before.stdout.startswith("changed Service default/a ("), before.stderr
    finally:
        assert weft("down", name).returncode == 0


def test_the_error_for_a_missing_directory_does_not_import_the_engine(tmp_path):
    code = (
        "import sys\nfrom weft.cli.start import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('weft.cli.run.foreground', 'weft.local.engine') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "up", str(tmp_path / "no")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n" and "does not exist" in done.stderr
