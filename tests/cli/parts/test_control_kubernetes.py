"""The process as the Deployment runs it, against a real API server; the rest is in tests/control and tests/on_cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from tools.ports import free_port

from cluster.kubernetes import unique
from weft.cli.main import app


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_serves_until_it_is_terminated_and_logs_no_secret(api_server, tmp_path):
    namespace, monitoring = api_server.make_namespace(unique("control")), free_port()
    arguments = ["control", "--kubernetes", "--kubeconfig", str(api_server.kubeconfig), "--namespace", namespace]
    arguments += ["--listen", "127.0.0.1:0", "--ca-listen", "127.0.0.1:0", "--webhook-listen", "127.0.0.1:0"]
    arguments += ["--monitoring-listen", f"127.0.0.1:{monitoring}", "--ca", str(tmp_path), "--log-level", "debug"]
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "POD_NAME": "weft-control-0"},
    )
    said = ""
    try:
        while "the objects of the cluster are loaded" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        with urllib.request.urlopen(f"http://127.0.0.1:{monitoring}/healthz", timeout=10) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        # A client that is sent here before all clients have noticed still gets a response, and is told to reconnect
        # elsewhere.
        while status(f"http://127.0.0.1:{monitoring}/ready") != 503:
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=30)[0]
    assert process.returncode == 0, said
    assert "weft-control-0" in said
    assert "PRIVATE KEY" not in said and not re.search(r"eyJ[\w-]{20,}\.", said)


@pytest.mark.parametrize("option", ["--webhook-listen", "--monitoring-listen"])
def test_an_invalid_address_is_an_error(option, tmp_path):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {token: x}}]\n"
    )
    result = CliRunner().invoke(app, ["control", "--kubernetes", "--kubeconfig", str(kubeconfig), option, "nonsense"])
    assert result.exit_code == 2
    assert "is not an address" in result.stderr


def test_a_missing_kubeconfig_is_an_error(tmp_path):
    result = CliRunner().invoke(app, ["control", "--kubernetes", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert str(tmp_path / "none") in result.stderr
