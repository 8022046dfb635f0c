"""Completion as shells request it: with real bash, and with the input that zsh and fish would send."""

import os
import re
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from weft.cli.commands import COMMANDS
from weft.cli.flags.completions import levels
from weft.cli.main import app
from weft.cli.parts.completion import _PATIENCE, _escaped


@pytest.fixture
def program(tmp_path):
    """A `weft` that a shell can start."""
    file = tmp_path / "weft"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -m weft.cli "$@"\n')
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def alone(tmp_path):
    path = os.pathsep.join(sys.path)
    return {**os.environ, "PYTHONPATH": path, "WEFT_RUN_DIR": str(tmp_path), "HOME": str(tmp_path), "KUBECONFIG": ""}


def in_bash(program, environment, *typed):
    """What bash would offer for the last word."""
    words = " ".join(f"'{word}'" if "'" not in word else f'"{word}"' for word in ("weft", *typed))
    script = (
        f"source <({program} completion bash)\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}\n"
        f'_weft_completion {program}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    command = ["bash", "--norc", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def asked(environment, **variables):
    command = [sys.executable, "-m", "weft.cli"]
    done = subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stderr == ""
    return done


def test_bash_completes_commands_flags_and_choices(program, alone):
    assert in_bash(program, alone, "pro") == ["proxy-config", "proxy-status"]
    assert in_bash(program, alone, "pc", "") == [
        *("listeners", "routes", "clusters", "endpoints", "secret", "bootstrap", "ecds", "log", "rootca-compare"),
        "all",
    ]
    assert in_bash(program, alone, "x", "authz", "") == ["check"]
    assert in_bash(program, alone, "pc", "clusters", "--su") == ["--subset"]
    assert in_bash(program, alone, "pc", "clusters", "-o", "") == ["short", "table", "json", "yaml"]
    assert in_bash(program, alone, "pc", "endpoints", "--status", "unh") == ["unhealthy"]
    assert in_bash(program, alone, "describe", "") == ["pod", "svc"]


def test_every_command_that_is_listed_is_offered(program, alone):
    listed = [command.name for commands in COMMANDS.values() for command in commands if not command.hidden]
    assert in_bash(program, alone, "") == listed


def test_an_unknown_command_has_no_completions(program, alone):
    assert in_bash(program, alone, "bogus", "") == []
    assert in_bash(program, alone, "pc", "bogus", "") == []


def test_without_a_mesh_and_a_cluster_there_are_no_names(program, alone):
    assert in_bash(program, alone, "ps", "--mesh", "") == []
    assert in_bash(program, alone, "pc", "clusters", "x") == []
    assert in_bash(program, alone, "pc", "endpoints", "x", "--cluster", "") == []


@pytest.mark.root
def test_bash_completes_names_of_a_mesh(program, weft, mesh):
    def offered(*typed):
        return in_bash(program, {**weft.environment, "KUBECONFIG": ""}, *typed)

    assert offered("ps", "--mesh", mesh[:3]) == [mesh]
    assert offered("status", "") == [mesh]
    assert offered("pc", "clusters", "talk") == ["talker", "talker-0.shop", "talker-1.shop"]
    assert offered("pc", "clusters", "-n", "shop", "talk") == ["talker", "talker-0", "talker-1"]
    assert offered("pc", "clusters", "deploy/") == ["deploy/talker"]
    assert offered("explain", "talker-1") == ["talker-1.shop"]
    assert offered("describe", "pod", "talker-0") == ["talker-0.shop"]
    assert offered("proxy-status", "-n", "") == ["shop"]
    assert offered("pc", "endpoints", "talker", "--cluster", "Inbound") == ["InboundPassthroughCluster"]
    assert "virtualOutbound" in offered("why", "talker", "virtual")


def test_zsh_and_fish_get_a_line_about_each_command(alone):
    said = asked(alone, _WEFT_COMPLETE="zsh_complete", COMP_WORDS="weft pc c", COMP_CWORD="2").stdout
    assert (
        said == "plain\nclusters\nClusters: the hosts that the proxy can call, and the DestinationRule behind each.\n"
    )
    done = asked(alone, _WEFT_COMPLETE="fish_complete", COMP_WORDS="weft hist", COMP_CWORD="hist")
    assert done.stdout == "history\tShow what has changed in a mesh, and when.\n"
    assert done.returncode == 0


def test_describing_commands_takes_no_rich(alone):
    code = (
        "import sys\nfrom weft.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('rich', 'weft.cli.look.describe') if name in sys.modules])"
    )
    variables = {"_WEFT_COMPLETE": "fish_complete", "COMP_WORDS": "weft ", "COMP_CWORD": ""}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**alone, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("[]\n") and done.stderr == ""


@pytest.mark.parametrize(
    "variables",
    [
        {"_WEFT_COMPLETE": "nonsense"},
        {"_WEFT_COMPLETE": "nonsense_complete"},
        {"_WEFT_COMPLETE": "bash_complete"},
        {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": "weft pc", "COMP_CWORD": "x"},
        {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": "weft explain 'x", "COMP_CWORD": "9"},
    ],
    ids=str,
)
def test_invalid_completion_requests_print_nothing(alone, variables):
    assert asked(alone, **variables).stdout.strip() == ""


def test_a_cluster_that_does_not_respond_is_not_waited_for(alone, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        config = tmp_path / "config"
        config.write_text(
            f"clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n"
            "users: []\ncontexts: [{name: here, context: {cluster: a}}, {name: there, context: {cluster: a}}]\n"
            "current-context: here\n"
        )
        environment = {**alone, "KUBECONFIG": str(config), "_WEFT_COMPLETE": "bash_complete"}
        began = time.monotonic()
        assert asked(environment, COMP_WORDS="weft\npc\nclusters\nx", COMP_CWORD="3").stdout.strip() == ""
        assert time.monotonic() - began >= _PATIENCE  # it was queried, and given up long before this test would be
        said = asked(environment, COMP_WORDS="weft\npc\nclusters\n--context\n", COMP_CWORD="4").stdout
    assert said.split() == ["here", "there"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_reads_is_printed(shell):
    result = CliRunner().invoke(app, ["completion", shell], prog_name="weft")
    assert result.exit_code == 0
    assert f"_WEFT_COMPLETE={shell}_complete" in result.stdout


def test_it_is_installed_for_the_shell_of_the_terminal(program, alone, tmp_path):
    (tmp_path / ".bashrc").write_text("# mine\n")
    command = ["bash", "--norc", "-c", f"{program} --install-completion; true"]
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
    assert "bash completion installed" in done.stdout
    assert "_weft_completion" in (tmp_path / ".bash_completions" / "weft.sh").read_text()
    assert re.search(r"^# mine$", (tmp_path / ".bashrc").read_text(), re.MULTILINE)


def test_what_bash_would_take_for_a_pipe_is_escaped():
    assert _escaped("outbound|80||a.b", "weft\npc\nep\nx\n--cluster\nout") == r"outbound\|80\|\|a.b"
    assert _escaped("outbound|80||a.b", "weft\npc\nep\nx\n--cluster\n'out") == "outbound|80||a.b"


def test_a_level_is_completed_after_the_text_before_it():
    assert levels(None, None, "rbac:de") == ["rbac:debug"]
    assert levels(None, None, "rbac:debug,i") == ["rbac:debug,info"]
