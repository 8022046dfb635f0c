from click.testing import CliRunner

from weft.cli.main import app


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["redirect", *arguments])
    return done.exit_code, done.output


def test_without_an_agent_it_fails_and_says_where_to_look(tmp_path):
    code, said = run("--socket", str(tmp_path / "redirect"), "--timeout", "0.2", "-p", "15001", "-i", "*")
    assert code == 1
    assert f"no response from the node's agent at {tmp_path}/redirect within 0.2 s (No such file or directory)" in said
    assert "hint: kubectl -n istio-system get pods -l app=weft-node" in said


def test_arguments_that_make_no_sense_are_said_before_anybody_is_asked(tmp_path):
    code, said = run("--socket", str(tmp_path / "redirect"), "-p", "http")
    assert code == 1 and "`http` is not a number" in said


def test_a_time_that_is_none_is_said():
    code, said = run("--timeout=soon", "-i", "*")
    assert code == 2 and "--timeout needs a number" in said
