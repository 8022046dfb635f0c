import json

import pytest
from click.testing import CliRunner

from weft.cli.main import app


@pytest.mark.parametrize(
    "given", [["--file", "x"], ["talker", "--level", "info", "--reset"], ["talker", "-l", "app=x"], []]
)
def test_invalid_arguments_are_a_usage_error(given):
    assert CliRunner().invoke(app, ["pc", "log", *given], prog_name="weft").exit_code == 2


@pytest.mark.root
def test_sets_levels_on_every_pod_of_a_workload_and_takes_them_back(weft, mesh):
    def levels(*arguments):
        done = weft("pc", "log", "deploy/talker", "--mesh", mesh, "-o", "json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    before = levels()
    assert set(before) == {"talker-0.shop", "talker-1.shop"}
    assert {each["rbac"] for each in before.values()} == {"warning"}
    changed = levels("--level", "rbac:debug,info")
    for each in changed.values():
        assert (each["rbac"], each["http"]) == ("debug", "info")
    assert levels("--reset") == before


@pytest.mark.root
def test_pods_are_chosen_by_their_labels(weft, mesh):
    shown = weft("pc", "log", "-l", "app=talker", "--mesh", mesh, "-o", "json")
    assert set(json.loads(shown.stdout)) == {"talker-0.shop", "talker-1.shop"}
    refused = weft("pc", "log", "-l", "app=talker", "-n", "elsewhere", "--mesh", mesh)
    assert refused.returncode == 1 and "no pod with a proxy has the labels `app=talker`" in refused.stderr


@pytest.mark.root
def test_a_mistyped_logger_changes_nothing(weft, mesh):
    refused = weft("pc", "log", "talker-0", "--mesh", mesh, "--level", "error,rbca:debug")
    assert refused.returncode == 1 and "did you mean `rbac`?" in refused.stderr
    shown = weft("pc", "log", "talker-0.shop").stdout
    assert shown.startswith("talker-0.shop:\nactive loggers:\n") and "  rbac: warning\n" in shown
