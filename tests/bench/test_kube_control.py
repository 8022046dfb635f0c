from __future__ import annotations

import pytest
from bench.figure import Effort

from bench import kube_control


@pytest.mark.kube
@pytest.mark.timeout(400)
def test_measures_a_real_control_plane_whose_agents_all_get_the_config_of_their_pods(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "src")
    figures = kube_control.run(Effort(quick=True), lambda line: None)
    by_name = {figure.name.partition(": ")[2]: figure for figure in figures}
    assert by_name["first sync, sent"].value > 0
    assert by_name["first sync, until the last of 5 nodes has it"].value > 0
    assert by_name["one endpoint, until the last of 5 nodes has it"].value > 0
    assert 0 < by_name["one endpoint, sent"].value < by_name["one VirtualService, sent"].value
    assert by_name["RSS"].value <= by_name["RSS, the most there was"].value
