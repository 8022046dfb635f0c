import pytest

from weft.cli.pod import drain
from weft.envoy import drain as of_envoy


@pytest.mark.parametrize(
    ("given", "least", "until_idle"), [([], 5.0, False), (["90s"], 90.0, False), (["--until-idle", "500ms"], 0.5, True)]
)
def test_options_set_the_minimum_time_and_the_end_condition(monkeypatch, given, least, until_idle):
    asked = []
    monkeypatch.setattr(of_envoy, "drain", lambda **options: asked.append(options))
    assert drain.run(given) == 0
    ((options),) = asked
    assert (options["least"], options["until_idle"]) == (least, until_idle)


@pytest.mark.parametrize("given", [["soon"], ["5s", "6s"], ["-5s"]])
def test_an_invalid_duration_is_an_error(given, capsys):
    assert drain.run(given) == 2
    assert "hint: for example: weft drain 5s" in capsys.readouterr().err


def test_without_an_envoy_it_ends_and_prints_the_reason(capsys):
    assert drain.run(["0s"]) == 0
    assert "Envoy does not answer" in capsys.readouterr().err


def test_a_gateway_is_drained_as_one(monkeypatch):
    asked = []
    monkeypatch.setattr(of_envoy, "drain", lambda **options: asked.append(options))
    assert drain.run(["--gateway", "2s"]) == 0
    assert (asked[0]["gateway"], asked[0]["least"]) == (True, 2.0)
