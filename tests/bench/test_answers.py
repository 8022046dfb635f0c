from __future__ import annotations

import pytest
from bench.figure import Effort

from bench import answers


@pytest.mark.root
def test_every_command_is_measured_against_its_goal(monkeypatch):
    monkeypatch.setattr(answers, "HELP", ("--help",))
    chosen = [
        each for each in answers.ANSWERS if each.split()[0] in ("history", "test") or each.endswith("log frontend")
    ]
    monkeypatch.setattr(answers, "ANSWERS", chosen)
    said = []
    figures = answers.run(Effort(quick=True), said.append)
    commands = (
        ("weft --help", 150),
        ("weft proxy-config log frontend", 300),
        ("weft history", 300),
        ("weft test examples/shop bench/requests.yaml", 300),
    )
    assert [(figure.name, figure.unit, figure.goal) for figure in figures] == [
        (name, unit, goal) for name, goal in commands for unit in ("ms", "CPU ms")
    ]
    assert all(figure.value > 0 for figure in figures)
    assert said == ["the shop runs", "4 commands, each the best of 1"]


def test_all_that_is_expected_of_the_shop_is_so():
    _, *paths = next(each for each in answers.ANSWERS if each.startswith("test ")).split()
    assert answers._weft(["test", *paths], answers.os.environ).returncode == 0


def test_a_command_that_fails_is_not_measured(tmp_path):
    with pytest.raises(answers.Failed, match="weft history exited with 1"):
        answers._milliseconds(
            "history", {**answers.os.environ, "WEFT_RUN_DIR": str(tmp_path), "KUBECONFIG": "", "HOME": str(tmp_path)}
        )
