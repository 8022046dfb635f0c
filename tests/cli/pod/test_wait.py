import pytest

from weft.cli.pod import wait


def test_fails_where_envoy_does_not_become_ready(capsys):
    assert wait.run(["10ms"]) == 1
    assert "the proxy is not ready after 0.01 s: Envoy does not answer" in capsys.readouterr().err


def test_exits_with_0_when_envoy_is_ready(monkeypatch):
    monkeypatch.setattr("weft.envoy.drain.wait_until_ready", lambda *, most: "" if most == 60.0 else "no")
    assert wait.run([]) == 0


def test_the_error_is_the_containers_termination_message(monkeypatch, tmp_path, capsys):
    words = tmp_path / "termination-log"
    monkeypatch.setattr("weft.cli.pod.wait._LAST_WORDS", str(words))
    assert wait.run(["10ms"]) == 1
    assert not words.exists()
    words.write_text("of before")
    assert wait.run(["10ms"]) == 1
    assert words.read_text().startswith("error: the proxy is not ready after 0.01 s")
    assert words.read_text() * 2 == capsys.readouterr().err


def asked(monkeypatch, *answers):
    """Replace `weft redirect`: return the list of its calls, and let each call return the next of `answers`."""
    questions, left = [], list(answers)

    def answer(arguments):
        questions.append(arguments)
        return left.pop(0)

    monkeypatch.setattr("weft.cli.pod.redirect.have_redirected", answer)
    return questions


def test_requests_the_redirect_before_it_waits(monkeypatch):
    questions = asked(monkeypatch, 0)
    ready = []
    monkeypatch.setattr("weft.envoy.drain.wait_until_ready", lambda *, most: ready.append((most, len(questions))) or "")
    assert wait.run(["5s", "--redirect", "-p", "15001", "-x", ""]) == 0
    assert questions == [["-p", "15001", "-x", ""]] and ready == [(5.0, 1)]


def test_fails_without_the_redirect_whether_or_not_envoy_is_ready(monkeypatch):
    asked(monkeypatch, 1)
    monkeypatch.setattr("weft.envoy.drain.wait_until_ready", lambda *, most: "")
    assert wait.run(["--redirect", "-p", "15001"]) == 1


def test_prints_the_error_of_the_redirect(capsys):
    assert wait.run(["--redirect", "--socket", "/nowhere/redirect", "--timeout", "0.1", "-p", "15001"]) == 1
    assert "no response from the node's agent at /nowhere/redirect within 0.1 s" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["soon"], ["1s", "2s"], ["soon", "--redirect", "-p", "15001"]])
def test_an_invalid_duration_is_an_error(given, capsys):
    assert wait.run(given) == 2
    assert "hint" in capsys.readouterr().err
