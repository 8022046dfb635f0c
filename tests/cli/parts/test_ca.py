from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from click.testing import CliRunner
from rich.console import Console

from ca import forging, making
from weft.ca.authority import Authority
from weft.ca.certificates import certificate_pem
from weft.ca.status import read_status
from weft.cli.main import app
from weft.cli.parts.ca import _table


def run(*arguments):
    return CliRunner().invoke(app, ["ca", *map(str, arguments)])


def start(*arguments):
    command = [sys.executable, "-m", "weft.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "ca"


def test_makes_a_root_once(directory):
    first = run("init", directory)
    assert first.exit_code == 0
    assert "bundle.pem" in first.stderr
    before = read_status(directory)
    assert run("init", directory).exit_code == 0
    assert read_status(directory) == before


def test_shows_a_ca_to_people_and_to_programs(directory):
    run("init", directory)
    table = run("show", directory)
    assert table.exit_code == 0
    assert table.stdout.splitlines()[0].split() == ["ROLE", "NAME", "KEY", "NOT", "BEFORE", "EXPIRES", "LEFT"]
    assert "signing root" in table.stdout
    assert "self-made for cluster.local, steady" in table.stderr
    fingerprint = read_status(directory).certificates[0].fingerprint
    assert fingerprint in run("show", directory, "-o", "wide").stdout
    told = json.loads(run("show", directory, "-o", "json").stdout)
    assert told["phase"] == "steady"
    assert told["certificates"][0]["fingerprint"] == fingerprint
    assert "PRIVATE" not in run("show", directory, "-o", "json").output


def test_prints_the_roots_to_trust_in_pem(directory):
    run("init", directory)
    bundle = (directory / "bundle.pem").read_text()
    assert run("show", directory, "--pem").stdout == bundle
    assert json.loads(run("show", directory, "-o", "json").stdout)["certificates"][0]["pem"] == bundle
    run("rotate", directory)
    assert run("show", directory, "--pem").stdout == (directory / "bundle.pem").read_text() != bundle


def test_of_an_intermediate_only_the_root_is_to_be_trusted(tmp_path):
    root_key, key = making.p256(), making.p256()
    root = making.ca("root", root_key)
    soon = making.ca("soon", key, by=root, by_key=root_key, ends=0.1)
    making.plug_in(tmp_path, certificate=soon, key=key, roots=[root])
    assert run("show", tmp_path, "--pem").stdout == certificate_pem(root)
    shown = run("show", tmp_path).stderr
    assert "one root is trusted, and an intermediate of it signs" in shown
    assert "CA: warning: signer 'CN=soon' expires at" in shown


def test_a_roots_name_is_whole_on_a_narrow_terminal(directory):
    run("init", directory)
    status = read_status(directory)
    for wide in (False, True):
        console = Console(file=io.StringIO(), width=80, highlight=False)
        console.print(_table(status.certificates, wide=wide))
        shown = console.file.getvalue()
        assert status.certificates[0].subject in shown
        assert all(len(line) <= 80 for line in shown.splitlines())
        assert shown.startswith("ROLE ") is not wide  # a table still; with fingerprints, blocks


def test_shows_the_certificates_of_a_file(tmp_path):
    authority = Authority.in_memory(making.DOMAIN)
    chain = authority.sign(making.csr(), making.WEB, timedelta(minutes=90)).chain
    path = tmp_path / "chain.pem"
    path.write_text("".join((*chain, *authority.bundle())))
    shown = run("show", path).stdout.splitlines()
    assert shown[1].split()[:2] == ["leaf", "spiffe://cluster.local/ns/shop/sa/web"]
    assert shown[1].endswith("m")
    assert shown[2].startswith("root")
    assert len(json.loads(run("show", path, "-o", "json").stdout)) == 2


def test_reports_what_cannot_be_shown(tmp_path):
    assert "there is no CA in this directory" in run("show", tmp_path).stderr
    assert "cannot be read" in run("show", tmp_path / "no").stderr
    (tmp_path / "file").write_text("noise")
    assert "contains no certificates" in run("show", tmp_path / "file").stderr


def test_rotates_a_ca_without_a_signing_process(directory):
    run("init", directory)
    done = run("rotate", directory, "--propagation", "10m")
    assert done.exit_code == 0
    assert "announced: both roots are trusted" in done.stderr
    assert "continues when weft control or weft up runs with it" in done.stderr
    assert "a rotation is in progress" in run("rotate", directory).stderr
    assert "fading" in run("rotate", directory, "--now").stderr
    said = run("status", directory)
    assert said.exit_code == 0 and said.stderr.startswith("fading: ")
    assert "continues when weft control or weft up runs with it" in said.stderr
    assert read_status(directory).phase == "fading"


def test_the_error_explains_how_a_plugged_in_ca_is_rotated(directory):
    key = making.p256()
    making.plug_in(directory, certificate=making.ca("root", key), key=key)
    done = run("rotate", directory)
    assert done.exit_code == 1
    assert "weft does not rotate its roots" in done.stderr
    assert done.stderr.count("hint: ") == 2


@pytest.mark.parametrize("time", ["x", "10", "10y", "-5s", "٣s", "9" * 5000 + "s"])
def test_an_invalid_duration_is_an_error(directory, time):
    run("init", directory)
    done = run("rotate", directory, f"--propagation={time}")
    assert done.exit_code == 2
    assert "is not a duration" in done.stderr


def test_a_root_does_not_wait_for_longer_than_a_year(directory):
    run("init", directory)
    done = run("rotate", directory, "--propagation=367d")
    assert done.exit_code == 2
    assert "longer than a year" in done.stderr


def test_reports_a_missing_directory(directory):
    assert "there is no CA" in run("rotate", directory).stderr


@pytest.mark.root
def test_the_ca_of_a_mesh_on_this_machine_is_shown_and_rotated(weft, mesh):
    told = json.loads(weft("ca", "show", "--mesh", mesh, "-o", "json").stdout)
    assert told["phase"] == "steady"
    done = weft("ca", "rotate", "--mesh", mesh, "--propagation", "1h")
    assert done.returncode == 0
    assert done.stderr.startswith("announced: both roots are trusted")
    assert "announced" in weft("ca", "show", "--mesh", mesh).stderr
    assert weft("ca", "status", "--mesh", mesh, "--no-follow").stderr.startswith("announced: ")
    assert "a rotation is in progress" in weft("ca", "rotate", "--mesh", mesh).stderr
    assert weft("ca", "rotate", "--mesh", mesh, "--now").returncode == 2
    assert "no mesh named `nobody`" in weft("ca", "show", "--mesh", "nobody").stderr


@pytest.mark.timeout(120)
def test_one_command_rotates_the_root_of_a_running_control_plane(tmp_path, directory):
    (tmp_path / "mesh").mkdir()
    keys = tmp_path / "issuer.pem"
    keys.write_bytes(forging.public_pem(making.p256()))
    run("init", directory)
    old = read_status(directory).certificates[0].fingerprint
    control = start(
        *("control", "--config", tmp_path / "mesh", "--listen", f"unix:{tmp_path}/xds.sock"),
        *("--ca", directory, "--ca-listen", f"unix:{tmp_path}/ca.sock"),
        *("--token-keys", keys, "--token-issuer", "https://issuer.example"),
    )
    try:
        assert "serving xDS" in control.stderr.readline()
        assert "serving the CA of cluster.local" in control.stderr.readline()
        rotating = start("ca", "rotate", directory, "--propagation", "1s", "--wait")
        try:
            assert rotating.stderr.readline().startswith("announced: ")
            assert rotating.stderr.readline().startswith("fading: ")
            rotating.send_signal(signal.SIGINT)  # the old root is removed a minute later, because clocks may be late
            _, said = rotating.communicate(timeout=20)
        finally:
            rotating.kill()
            rotating.communicate()
        assert rotating.returncode == 130
        assert "continues without this command" in said
        assert run("status", directory, "--no-follow").stderr.startswith("fading: ")
        status = read_status(directory)
        assert status.phase == "fading"
        assert [each.fingerprint == old for each in status.certificates] == [False, True]
        control.send_signal(signal.SIGTERM)
        assert control.wait(timeout=20) == 0
    finally:
        control.kill()
        control.communicate()
