from __future__ import annotations

import json

from bench.figure import Effort, Figure, quantile, write


def test_a_figure_within_its_goal_is_ok_and_one_past_it_is_not():
    assert Figure("start", 0.5, "s", goal=0.5).ok
    assert not Figure("start", 0.51, "s", goal=0.5).ok


def test_a_figure_without_a_goal_only_informs():
    assert Figure("memory", 10**9, "MB").ok


def test_results_are_a_list_with_all_fields_of_each_figure(tmp_path):
    path = tmp_path / "results" / "latest.json"
    write([Figure("start", 2.0, "s", goal=1.0, baseline=3.0), Figure("memory", 1.0, "MB")], path)
    assert json.loads(path.read_text()) == [
        {"name": "start", "value": 2.0, "unit": "s", "goal": 1.0, "baseline": 3.0, "ok": False},
        {"name": "memory", "value": 1.0, "unit": "MB", "goal": None, "baseline": None, "ok": True},
    ]


def test_a_quantile_is_one_of_the_values():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_a_quick_run_does_less():
    assert Effort(quick=True).of(60, 10) == 10
    assert Effort().of(60, 10) == 60
