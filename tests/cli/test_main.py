import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from weft.base.problem import Problem, Where
from weft.cli.commands import COMMANDS
from weft.cli.lazy_commands import load
from weft.cli.main import RootGroup, app

LISTED = [command for commands in COMMANDS.values() for command in commands if not command.hidden]


def run(*arguments):
    return CliRunner().invoke(app, arguments, prog_name="weft")


def test_help_lists_every_command_under_what_a_person_wants():
    listing = run("--help").stdout.partition("A mesh on this machine:")[2]
    listed = re.findall(r"^  ([a-z-]+) ", listing, re.MULTILINE)
    assert listed == [command.name for command in LISTED]


def test_no_command_shows_the_help():
    assert "A mesh on this machine:" in run().output


@pytest.mark.parametrize("command", LISTED, ids=lambda command: command.name)
def test_a_commands_line_is_the_first_sentence_of_its_own_help(command):
    assert load(command).get_short_help_str(1000) == command.line


@pytest.mark.parametrize("command", [command.name for command in LISTED])
def test_each_commands_help_teaches_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: weft {command}" in result.stdout


def test_a_mistyped_command_gets_a_suggestion():
    result = run("stauts")
    assert result.exit_code == 2
    assert "status" in result.stderr
    assert result.stdout == ""


def test_a_word_that_is_like_no_command_is_not_taken_for_one():
    result = run("bogus")
    assert result.exit_code == 2
    assert result.stderr == "error: there is no command `bogus`\nhint: list them with: weft --help\n"


def test_a_mistyped_option_is_a_usage_error():
    result = run("up", "--detatch")
    assert result.exit_code == 2
    assert "--detach" in result.stderr


def test_an_invalid_value_of_a_flag_gets_the_list_of_valid_ones():
    result = run("analyze", "--failure-threshold", "bogus")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "error: invalid value for '--failure-threshold': 'bogus' is not one of 'info', 'warning', 'error'\n"
    )


def test_version_is_an_option_too():
    assert run("--version").stdout.startswith("weft ")


def test_an_error_with_a_problem_is_printed_with_its_hint_and_no_traceback(monkeypatch):
    class TestError(Exception):
        problem = Problem(Where(object="namespace x"), "cannot be made", "run as root")

    def fails() -> None:
        raise TestError

    monkeypatch.setattr("weft.cli.parts.version.print_here", fails)
    result = run("--version")
    assert result.exit_code == 1
    assert result.stderr == "error: namespace x: cannot be made\nhint: run as root\n"


def test_a_defect_is_not_dressed_up_as_a_problem():
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(_broken(), ["--flag"], catch_exceptions=False)


def _broken():
    @click.group(cls=RootGroup, invoke_without_command=True)
    @click.option("--flag", is_flag=True)
    def broken(flag):
        raise ZeroDivisionError

    return broken


# Modules that take longer to import than the rest of a command takes.
HEAVY = {
    "aiohttp",
    "asyncio",
    "cryptography",
    "dns",
    "google.protobuf",
    "grpc",
    "http.client",
    "importlib.metadata",
    "jwt",
    "pydantic",
}
HEAVY |= {"pyroute2", "rich", "ssl", "yaml", "weft.local.engine", "weft.kube"}
SHOP = str(Path(__file__).parents[2] / "examples" / "shop")


def loaded(environment, *arguments, names=HEAVY):
    """Return which of these modules a command has imported when it ends."""
    code = (
        "import os, sys\nfrom weft.cli.main import main\nkept = os.dup(2)\nos.dup2(os.open(os.devnull, os.O_RDWR), 2)\n"
        f"sys.argv = {['weft', *arguments]}\ntry:\n    main()\nexcept SystemExit as ended:\n    code = ended.code\n"
        f"os.write(kept, repr((code, sorted({set(names)} & set(sys.modules)))).encode())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    code, modules = ast.literal_eval(found.stderr)
    assert code in (None, 0), found.stdout
    return set(modules)


@pytest.fixture
def nowhere(tmp_path):
    """Without a mesh and without a cluster."""
    path = os.pathsep.join(sys.path)
    return {**os.environ, "PYTHONPATH": path, "WEFT_RUN_DIR": str(tmp_path), "HOME": str(tmp_path), "KUBECONFIG": ""}


@pytest.mark.parametrize(
    "arguments",
    [[], ["x"], ["pc"], ["authn"], ["ca"], ["manifest"], ["x", "authz"], ["x", "authz", "check"], ["pc", "clusters"]]
    + [[command.name] for command in LISTED if command.name not in ("x", "authn", "ca", "manifest", "proxy-config")],
    ids=" ".join,
)
def test_help_loads_nothing_that_takes_long(nowhere, arguments):
    assert loaded(nowhere, *arguments, "--help", names=HEAVY | {"msgspec", "weft.local"}) == set()


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["version", "--remote=false"], {"importlib.metadata"}),
        (["validate", SHOP], {"yaml"}),
        (["analyze", SHOP], {"yaml"}),
        (["explain", "frontend", "--to", "http://payments/", "-f", SHOP], {"yaml", "google.protobuf"}),
        (["diff", "-f", f"{SHOP}/payments.yaml", "--against", SHOP], {"yaml", "google.protobuf"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_on_files_import_no_server_modules(nowhere, arguments, needed):
    assert loaded(nowhere, *arguments, names=HEAVY) == needed


# Modules that `weft diff` needs only for Deployments, or for more than a verdict.
OF_OTHERS = {
    "google.protobuf.json_format",
    "weft.analyze.pods",
    "weft.inspect.describe.pods_and_services",
    "weft.control.plane",
}
OF_OTHERS |= {
    "weft.inspect.ask.why",
    "weft.inspect.rehearse.pods_from_templates",
    "weft.inject",
    "weft.install",
    "weft.xds.stream",
}
CHANGE = ["diff", "-f", f"{SHOP}/payments.yaml"]


def test_a_change_of_files_is_compared_without_what_describes_or_injects(nowhere):
    assert loaded(nowhere, *CHANGE, "--against", SHOP, names=HEAVY | OF_OTHERS) == {"yaml", "google.protobuf"}


@pytest.mark.root
def test_a_diff_with_a_running_mesh_imports_no_heavy_module(weft, mesh, mesh_directory):
    same = ["diff", "-f", str(next(Path(mesh_directory).glob("*.yaml"))), "--mesh", mesh]
    found = loaded({**weft.environment, "KUBECONFIG": ""}, *same, names=HEAVY | OF_OTHERS)
    assert found == {"yaml", "google.protobuf"}


@pytest.mark.root
@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["ps"], {"rich"}),
        (["status"], {"rich"}),
        (["logs", "talker-0"], set()),
        (["version"], {"importlib.metadata"}),
        (["pc", "listeners", "talker"], set()),
        (["pc", "routes", "talker"], set()),
        (["pc", "clusters", "talker"], set()),
        (["pc", "endpoints", "talker", "-o", "yaml"], {"yaml"}),
        (["pc", "secret", "talker"], {"cryptography"}),
        (["pc", "bootstrap", "talker"], set()),
        (["pc", "log", "talker-0"], set()),
        (["proxy-status"], set()),
        (["proxy-status", "talker-0"], set()),
        (["x", "describe", "pod", "talker"], set()),
        (["x", "authz", "check", "talker"], set()),
        (["check-inject", "talker"], set()),
        (["analyze"], {"yaml"}),
        (["why", "talker", "virtualOutbound"], set()),
        (["explain", "talker", "--to", "http://talker.shop/"], set()),
        (["history"], set()),
        (["bisect", "talker", "--to", "http://talker.shop/"], set()),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_a_query_of_a_mesh_imports_no_module_that_runs_one(weft, mesh, arguments, needed):
    assert loaded({**weft.environment, "KUBECONFIG": ""}, *arguments, "--mesh", mesh) == needed


@pytest.mark.root
def test_exec_loads_little_before_it_becomes_another_program(weft, mesh):
    code = f"import sys, weft.cli.reach.choose, weft.local.client\nprint(sorted({HEAVY} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=weft.environment)
    assert found.stdout.strip() == "[]"
