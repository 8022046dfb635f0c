import os
import subprocess
import sys

import pytest

from weft.cli.pod.iptables import run
from weft.inject.redirect import Redirection, arguments
from weft.netns import namespace

INJECTED = arguments(Redirection(exclude_outbound_ports="3306"))


@pytest.fixture
def pod():
    made = namespace.make(f"weft-cli-iptables-{os.getpid()}")
    subprocess.run(["ip", "-n", made.name, "link", "set", "lo", "up"], check=True)
    yield made
    namespace.delete(made)


def run_in(pod, *given, capabilities="+net_admin,+net_raw"):
    """As kubelet runs istio-init: these capabilities and no other, no new privileges, nothing to write to."""
    confined = [
        *("setpriv", "--no-new-privs", "--bounding-set", f"-all,{capabilities}", "--inh-caps", f"-all,{capabilities}"),
        *(sys.executable, "-m", "weft.cli", "iptables", *given),
    ]
    read_only = 'mount --make-rprivate / && mount -o remount,bind,ro / && exec "$@"'
    command = ["ip", "netns", "exec", pod.name, "unshare", "--mount", "sh", "-c", read_only, "sh", *confined]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def rules_in(pod, program="iptables-save"):
    command = ["ip", "netns", "exec", pod.name, program, "-t", "nat"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_dry_run_only_prints_the_rules(capsys):
    assert run([*INJECTED, "--dry-run"]) == 0
    four, six = capsys.readouterr().out.split("# ip6tables-restore")
    assert "-A ISTIO_OUTPUT -p tcp --dport 3306 -j RETURN" in four
    assert "-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN" in four
    assert "-s ::6/128 -j RETURN" in six


@pytest.mark.parametrize(
    ("given", "words"),
    [(["-p", "99999"], "99999"), (["--unknown"], "unknown argument"), (["-m", "TPROXY"], "TPROXY is not supported")],
)
def test_an_invalid_argument_is_an_error(given, words, capsys):
    assert run(given) == 2
    found = capsys.readouterr()
    assert words in found.err
    assert found.out == ""


@pytest.mark.root
def test_puts_the_redirect_in_place_with_the_rights_of_istio_init_alone_and_may_be_run_again(pod):
    first = run_in(pod, *INJECTED)
    assert (first.returncode, first.stderr) == (0, "the redirect is in place\n")
    assert "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001" in first.stdout
    rules = rules_in(pod)
    assert "-A ISTIO_OUTPUT -p tcp -m tcp --dport 3306 -j RETURN" in rules
    assert "ISTIO_REDIRECT" in rules_in(pod, "ip6tables-save")
    address = ["ip", "-n", pod.name, "-6", "addr", "show", "lo"]
    assert "::6/128" in subprocess.run(address, capture_output=True, text=True, check=True).stdout
    assert run_in(pod, *INJECTED).returncode == 0
    assert rules_in(pod).count("-j ISTIO_OUTPUT\n") == rules.count("-j ISTIO_OUTPUT\n") == 1


@pytest.mark.root
def test_names_the_missing_capability(pod):
    found = run_in(pod, *INJECTED, capabilities="+net_raw")
    assert found.returncode == 1
    assert "error: " in found.stderr
    assert "ISTIO" not in rules_in(pod)
