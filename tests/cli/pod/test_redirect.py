from click.testing import CliRunner

from weft.cli.main import app


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["redirect", *arguments])
    return done.exit_code, done.output


def test_without_an_agent_it_fails_with_a_hint(tmp_path):
    code, said = run("--socket", str(tmp_path / "redirect"), "--timeout", "0.2", "-p", "15001", "-i", "*")
    assert code == 1
    assert f"no response from the node's agent at {tmp_path}/redirect within 0.2 s (No such file or directory)" in said
    assert "hint: kubectl -n istio-system get pods -l app=weft-node" in said


def test_invalid_arguments_are_errors_before_the_agent_is_called(tmp_path):
    code, said = run("--socket", str(tmp_path / "redirect"), "-p", "http")
    assert code == 1 and "`http` is not a number" in said


def test_an_invalid_duration_is_an_error():
    code, said = run("--timeout=soon", "-i", "*")
    assert code == 2 and "--timeout needs a number" in said
