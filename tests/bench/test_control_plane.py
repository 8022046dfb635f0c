from __future__ import annotations

from bench.control_plane import _Rig
from bench.control_process import Shape


def test_changes_reach_every_proxy_that_sees_them_and_cost_the_others_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "src")
    figures = _Rig(Shape(namespaces=4, services=2, per_group=2), tmp_path).run(2, lambda line: None)
    by_name = {figure.name.partition(": ")[2]: figure for figure in figures}
    assert by_name["first push, sent"].value > 0
    assert by_name["one endpoint, sent"].value > 0
    assert by_name["one endpoint, translation"].goal == 1.0
    assert by_name["sent to groups that do not see a change"].value == 0
    assert by_name["groups updated that do not see a change"].value == 0
