import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from weft.cli.main import app
from weft.cli.parts import interception
from weft.netns import namespace

ISTIO = ["-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT"]
ALL = [*ISTIO, "-i", "*", "-x", "10.9.0.0/16", "-b", "*", "-d", "15090,15021"]


def run(*arguments):
    return CliRunner().invoke(app, ["interception", *arguments])


@pytest.fixture
def pod():
    made = namespace.make(f"weft-cli-test-{os.getpid()}")
    yield made
    namespace.delete(made)


def run_in(pod, *arguments):
    command = ["ip", "netns", "exec", pod.name, sys.executable, "-m", "weft.cli", "interception", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def rules_in(pod):
    command = ["ip", "netns", "exec", pod.name, "iptables-save", "-t", "nat"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_prints_the_rules_for_istios_arguments_and_both_families():
    four, six = run(*ALL).stdout.split("# ip6tables-restore")
    assert "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001" in four
    assert "-A ISTIO_OUTPUT -d 10.9.0.0/16 -j RETURN" in four
    assert "-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN" in four
    assert "10.9.0.0/16" not in six
    assert "-s ::6/128 -j RETURN" in six


def test_an_invalid_argument_is_an_error():
    result = run("-p", "99999")
    assert result.exit_code == 1
    assert "99999" in result.stderr
    assert result.stdout == ""


@pytest.mark.root
def test_applies_the_rules_in_its_own_namespace_and_takes_them_out_again(pod):
    applied = run_in(pod, *ALL, "--apply")
    assert (applied.returncode, applied.stderr) == (0, "the rules are in place\n")
    assert "-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006" in rules_in(pod)
    removed = run_in(pod, "--remove")
    assert (removed.returncode, removed.stderr) == (0, "the rules are removed\n")
    assert "ISTIO" not in rules_in(pod)


def test_never_touches_the_machines_own_namespace_unless_forced(monkeypatch):
    changed = []
    monkeypatch.setattr(interception, "_change", changed.append)
    for how in ("--apply", "--remove"):
        result = run(*ALL, how)
        assert result.exit_code == 1
        assert "the machine's own network namespace" in result.stderr
        assert "--force" in result.stderr
    assert changed == []


def test_an_unidentified_namespace_counts_as_the_machines_own(monkeypatch):
    monkeypatch.setattr(namespace, "_FIRST", 0)
    monkeypatch.setattr(interception, "_PROCESS_ONE", interception.Path("/proc/self/no-such-namespace"))
    assert interception._is_machines_own()


def test_applying_and_removing_at_once_is_refused():
    assert run("--apply", "--remove").exit_code == 2
