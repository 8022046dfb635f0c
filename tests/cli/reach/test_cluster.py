"""What commands for a cluster share."""

import pytest
import typer

from weft.base.problem import Problem
from weft.cli.reach.cluster import Progress, chosen, client, confirm, progress


def test_files_come_before_set_and_the_revision_has_an_option_of_its_own(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("control: {replicas: 3}\nnamespace: mesh\n")
    values = chosen([str(file)], ["control.replicas=4"], "a")
    assert (values.control.replicas, values.namespace, values.revision) == (4, "mesh", "a")


def test_a_file_that_is_not_there_ends_the_command(capsys):
    with pytest.raises(typer.Exit):
        chosen(["/nowhere/values.yaml"], [], "")
    assert "/nowhere/values.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("assignment", ["injection.settings.concurency=2", "injection.settings.concurrency=-1"])
def test_settings_that_the_injector_would_refuse_are_refused_before(assignment):
    with pytest.raises(Exception, match="concurrency") as error:
        chosen([], [assignment], "")
    assert isinstance(error.value.problem, Problem)


def test_a_cluster_is_the_one_of_the_kubeconfig(tmp_path):
    file = tmp_path / "config"
    file.write_text(
        "clusters: [{name: c, cluster: {server: 'https://example.org:6443'}}]\n"
        "contexts: [{name: x, context: {cluster: c}}]\n"
    )
    assert client(file, "x").connection.server == "https://example.org:6443"


def test_nobody_to_ask_is_no_consent(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(typer.Exit):
        confirm("really?", yes=False)
    assert "-y" in capsys.readouterr().err
    confirm("really?", yes=True)


def test_elsewhere_than_on_a_terminal_each_thing_is_a_line_and_said_once(capsys):
    with progress() as shown:
        for words in ("a", "a", "b"):
            shown.now(words)
    assert capsys.readouterr().err.splitlines() == ["a", "b"]


def test_on_a_terminal_one_line_changes(capsys):
    class Status:
        words = ""

        def update(self, words):
            self.words = words

    status = Status()
    Progress(status).now("a")
    assert status.words == "a"
    assert not capsys.readouterr().err
