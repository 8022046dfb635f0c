import json
import os

import pytest
from click.testing import CliRunner

from weft.cli.look import history
from weft.cli.main import app


def change(name, what="changed", **where):
    return {"object": {"kind": "Service", "namespace": "shop", "name": name}, "what": what, "where": where}


def test_changes_of_pods_alone_are_left_out_unless_requested():
    pod = {"object": {"kind": "Pod", "namespace": "shop", "name": "a"}, "what": "added", "where": {}}
    assert history._of_endpoints({"changes": [pod]})
    assert not history._of_endpoints({"changes": [pod, change("a")]})


def test_the_start_of_the_control_plane_is_printed(monkeypatch):
    """The hint of `weft explain --at` about an earlier time refers to this output."""
    moment = {"number": 2, "at": 1_000_060.0, "digest": "5be1c0ffee12", "changes": [change("a")]}
    past = {"begun": 1_000_000.0, "digest": "", "moments": [moment]}
    monkeypatch.setattr("weft.cli.reach.connect.answered", lambda *_, **__: past)
    done = CliRunner().invoke(app, ["history"], prog_name="weft")
    assert done.exit_code == 0 and "Service shop/a changed" in done.stdout
    assert done.stderr == f"the control plane has been running since {history.told_time(1_000_000.0)}\n"


@pytest.mark.root
def test_a_mesh_without_changes_is_reported(weft, mesh_directory):
    mesh = f"unchanged-{os.getpid()}"
    assert weft("up", mesh_directory, "--name", mesh, "--detach").returncode == 0
    try:
        done = weft("history", "--mesh", mesh)
        assert (done.returncode, done.stdout) == (0, "")
        assert "nothing has changed since" in done.stderr
        assert json.loads(weft("history", "--mesh", mesh, "-o", "json").stdout)["moments"] == []
    finally:
        weft("down", mesh)
