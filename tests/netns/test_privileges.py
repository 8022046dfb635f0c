import os
import subprocess
import sys

import pytest

import host
from weft.netns.privileges import missing_privileges

pytestmark = pytest.mark.root

ASK = "from weft.netns.privileges import missing_privileges\nfor problem in missing_privileges(): print(problem)"


def asked(*wrapper, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [*wrapper, sys.executable, "-c", ASK]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_root_on_a_machine_with_all_tools_lacks_nothing():
    before = host.network()
    assert missing_privileges() == []
    assert host.network() == before


def test_missing_capabilities_are_listed_with_a_command():
    said = asked("setpriv", "--bounding-set=-net_admin,-sys_admin", "--inh-caps=-all")
    assert "lacks CAP_NET_ADMIN, CAP_SYS_ADMIN" in said
    assert "--privileged" in said


def test_missing_programs_are_named_with_their_packages():
    said = asked(PATH="/nonexistent")
    assert "programs are missing: iptables-restore," in said
    assert "apt-get install iptables mount util-linux" in said


def test_rules_that_the_kernel_refuses_are_named(tmp_path):
    for program in ("iptables-restore", "ip6tables-restore"):
        (tmp_path / program).write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    said = asked(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "rejects the interception rules (iptables-restore): no such module" in said
    assert "modprobe" in said
