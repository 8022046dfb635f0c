import json

import click
import pytest
from click.testing import CliRunner

from weft.cli.look import describe
from weft.cli.main import app


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("pod", "a"), ("pod", "a")),
        (("po", "a"), ("pod", "a")),
        (("svc", "a"), ("service", "a")),
        (("Service", "a"), ("service", "a")),
        (("svc/a", None), ("service", "a")),
        (("deploy/a", None), ("pod", "a")),
    ],
)
def test_kinds_are_those_of_kubectl(words, wanted):
    assert describe._wanted(*words) == wanted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("web", None), "hint: weft describe pod web, or weft describe svc web\n"),
        (("svc", None), "error: no pod or service is named\n"),
        (("gateway", "a"), "error: `gateway` cannot be described\n"),
    ],
)
def test_what_cannot_be_described_is_a_usage_error(words, said, capsys):
    with pytest.raises(click.exceptions.Exit) as raised:
        describe._wanted(*words)
    assert raised.value.exit_code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [("service", "a"), ("po", "a"), ("deploy/a",), ("svc/a",)])
def test_the_command_line_takes_every_kind_of_kubectl(words, monkeypatch):
    questions = []
    monkeypatch.setattr(
        "weft.cli.reach.connect.answered", lambda _page, question, **_: questions.append(question) or {"lines": []}
    )
    done = CliRunner().invoke(app, ["describe", *words])
    assert (done.exit_code, questions[0]["name"]) == (0, "a"), done.output


@pytest.mark.root
@pytest.mark.parametrize("command", [("describe",), ("x", "describe")])
def test_queries_a_running_mesh(weft, mesh, command):
    done = weft(*command, "pod", "talker-0", "--mesh", mesh)
    assert done.returncode == 0, done.stderr
    assert "   Identity: spiffe://cluster.local/ns/shop/sa/default\n" in done.stdout
    assert "Services: none selects it" in done.stdout
    facts = json.loads(weft(*command, "pod", "talker-0", "--mesh", mesh, "-o", "json").stdout)
    assert facts["proxy"]["where"]["object"] == "Workload shop/talker"
    done = weft(*command, "svc", "talker", "--mesh", mesh)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no service `talker`" in done.stderr
