import json
import os
import re
import subprocess
import sys

import click
import pytest
import yaml
from click.testing import CliRunner

from weft.cli.commands import COMMANDS, by_name
from weft.cli.flags import shared
from weft.cli.lazy_commands import load
from weft.cli.main import app
from weft.cli.pod.listed import IN_PODS


@pytest.mark.parametrize("module", ["weft", "weft.cli"])
def test_the_command_is_a_module_too(module):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", module, "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert found.startswith("Usage: weft [OPTIONS] COMMAND")
    heading = found.partition("\n  x  ")[0].rpartition(":\n")[0].rpartition("\n")[2]
    assert heading == "Look inside"


def test_a_command_is_loaded_only_when_it_is_called():
    code = (
        "import sys\nfrom weft.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('weft.cli.')), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    needed = ["commands", "flags", "flags.boolean_values", "lazy_commands", "main", "pod", "pod.listed", "print"]
    needed.append("print.output")
    assert found.stderr.strip() == str([f"weft.cli.{name}" for name in needed])


def test_every_command_can_be_loaded_under_its_name():
    for name, command in by_name().items():
        assert load(command).name == name


def test_commands_for_pods_exist_and_are_hidden():
    assert {command.name: command.hidden for command in COMMANDS["In pods"]} == dict.fromkeys(IN_PODS, True)


# Commands that query one mesh, which all of them name in the same way, with their other arguments.
ASKS = {
    "pc listeners": ["talker"],
    "pc routes": ["talker"],
    "pc clusters": ["talker"],
    "pc endpoints": ["talker"],
    "pc secret": ["talker"],
    "pc bootstrap": ["talker"],
    "pc log": ["talker-0"],
    "pc all": ["talker"],
    "proxy-status": [],
    "x proxy-status": ["talker-0"],
    "describe": ["pod", "talker"],
    "x describe": ["pod", "talker"],
    "check-inject": ["talker"],
    "x check-inject": ["talker"],
    "x authz check": ["talker"],
    "analyze": [],
    "audit": [],
    "why": ["talker", "virtualOutbound"],
    "explain": ["talker", "--to", "http://talker.shop/"],
    "bisect": ["talker", "--to", "http://talker.shop/"],
    "history": [],
    "version": [],
}
# These commands query a mesh, too, but need more than a mesh of two pods: a service, a file, a file to write.
OTHERS = ("authn tls-check", "diff", "bug-report")


@click.command()
@shared.which_mesh
@shared.system
def declared(**_):
    """The flags as `weft.cli.flags.shared` declares them."""


SHARED = {each.name: each for each in declared.params}


def parameters(words):
    command = by_name()[words.split()[0]]
    made = load(command)
    for word in words.split()[1:]:
        made = made.get_command(None, word)
    return {each.name: each for each in made.params}


@pytest.mark.parametrize("words", [*ASKS, *OTHERS])
def test_all_name_a_mesh_or_a_cluster_with_the_same_flags(words):
    found = parameters(words)
    for name in ("mesh", "kubernetes", "kubeconfig", "context"):
        assert set(SHARED[name].opts) <= set(found[name].opts), name
        assert found[name].help == SHARED[name].help, name
    if "system" in found:
        assert (found["system"].opts, found["system"].help) == (SHARED["system"].opts, SHARED["system"].help)
    if "namespace" in found:
        assert found["namespace"].opts == ["-n", "--namespace"]


@pytest.mark.parametrize("words", [*ASKS, "authn tls-check", "diff", "test", "validate", "ps", "status"])
def test_every_command_has_text_and_structured_output(words):
    output = parameters(words)["output"]
    forms = set(output.type.choices)
    assert output.opts == ["-o", "--output"]
    assert {"json", "yaml"} <= forms and forms & {"text", "table"}
    if words not in ("ps", "status"):  # these have `wide`, and no counterpart in istioctl
        assert "short" in forms


def every(command, words):
    yield words, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from every(command.get_command(None, name), f"{words} {name}")


def test_help_names_every_output_format():
    commands = dict(each for name, command in by_name().items() for each in every(load(command), name))
    asked = 0
    for words, command in commands.items():
        output = next((each for each in command.params if each.name == "output"), None)
        forms = getattr(getattr(output, "type", None), "choices", None) or ()
        said = set(re.findall(r"\w+", output.help)) if forms else set()
        assert set(forms) <= said, f"{words}: {output.help}"
        asked += bool(forms)
    assert asked > 20


@pytest.mark.root
@pytest.mark.parametrize("words", ASKS)
def test_data_is_printed_on_standard_output_only_and_without_colour(weft, mesh, words):
    command = [*words.split(), *ASKS[words], "--mesh", mesh]
    said = {form: weft(*command, "-o", form) for form in ("json", "yaml", "short")}
    for form, done in said.items():
        assert done.returncode in (0, 1), (form, done.stderr)
        assert "error:" not in done.stderr and "\x1b" not in done.stdout + done.stderr, form
    told = json.loads(said["json"].stdout)
    if words not in MOVING:
        assert yaml.safe_load(said["yaml"].stdout) == told
    else:
        assert type(yaml.safe_load(said["yaml"].stdout)) is type(told)


# The output of these commands changes over time: times, memory, counters.
MOVING = ("audit", "explain", "pc endpoints", "proxy-status", "describe", "x describe")

ANSWERING = ("analyze",)  # commands whose exit code 1 is a result


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Without a mesh and without a cluster."""
    for name, value in (("WEFT_RUN_DIR", str(tmp_path)), ("HOME", str(tmp_path)), ("KUBECONFIG", "")):
        monkeypatch.setenv(name, value)
    return lambda *arguments: CliRunner().invoke(app, arguments, prog_name="weft")


@pytest.mark.parametrize("words", [words for words in ASKS if words != "version"])
def test_without_a_mesh_each_command_fails_with_a_hint(nowhere, words):
    done = nowhere(*words.split(), *ASKS[words])
    assert (done.exit_code, done.stdout) == (2 if words in ANSWERING else 1, "")
    assert done.stderr.startswith("error: no mesh is running\nhint: ")


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["analyze"], "weft analyze DIR"),
        (["explain", "web", "--to", "http://web/"], "-f DIR"),
        (["diff", "-f", __file__], "--against DIR"),
    ],
)
def test_without_a_mesh_files_are_offered_where_they_will_do(nowhere, words, files):
    assert f"hint: or use files: {files}\n" in nowhere(*words).output
    assert "use files" not in nowhere("history").output


@pytest.mark.parametrize("words", [words for words in ASKS if words != "version"])
def test_a_mesh_that_does_not_run_is_an_error_with_a_hint(nowhere, words):
    done = nowhere(*words.split(), *ASKS[words], "--mesh", "bogus")
    assert (done.exit_code, done.stdout) == (2 if words in ANSWERING else 1, "")
    assert done.stderr.startswith("error: no mesh named `bogus` is running\nhint: ")


@pytest.mark.parametrize("words", [*ASKS, *OTHERS])
def test_a_mesh_here_and_a_cluster_cannot_both_be_meant(nowhere, words):
    more = {"authn tls-check": ["web"], "diff": ["-f", "."], "bug-report": ["-o", "/nowhere/at/all"]}
    done = nowhere(*words.split(), *ASKS.get(words, more.get(words)), "--mesh", "shop", "--kubernetes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "hint: leave out --mesh, or leave out --kubernetes" in done.stderr


@pytest.mark.parametrize(
    "words", [*ASKS, *OTHERS, "test", "validate", "ps", "status", "logs", "up", "install", "ca show", "manifest values"]
)
def test_an_unknown_flag_is_a_usage_error_with_a_hint(words):
    result = CliRunner().invoke(app, [*words.split(), "--bogus"], prog_name="weft")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: no such option: --bogus")
    assert result.stderr.endswith(f"\nhint: see: weft {words} --help\n")
