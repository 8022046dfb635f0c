import pytest

from weft.cli import wait


def test_fails_where_envoy_does_not_become_ready(capsys):
    assert wait.run(["10ms"]) == 1
    assert "the proxy is not ready after 0.01 s: Envoy does not answer" in capsys.readouterr().err


def test_ends_when_it_is(monkeypatch):
    monkeypatch.setattr("weft.envoy.drain.wait_until_ready", lambda *, most: "" if most == 60.0 else "no")
    assert wait.run([]) == 0


@pytest.mark.parametrize("given", [["soon"], ["1s", "2s"]])
def test_a_time_that_is_none_is_said(given, capsys):
    assert wait.run(given) == 2
    assert "hint" in capsys.readouterr().err
