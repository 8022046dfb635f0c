"""The leftovers of a killed run are found by their records and removed; a cluster in use is not."""

import os
from pathlib import Path

import pytest
from tools.kube.holder import Holder, _cgroup_folders
from tools.kube.process import Record, record

from tools.kube import build, cluster


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Records, data and cgroups apart from those of a cluster that may run on this machine; nothing to build."""
    monkeypatch.setattr(cluster, "STATE", tmp_path / "state")
    monkeypatch.setattr(cluster, "DATA", tmp_path / f"weft-kube-test-{os.getpid()}")
    monkeypatch.setattr(build, "path", lambda name: "sleep infinity")
    (tmp_path / "state").mkdir()
    yield cluster.DATA
    Holder(cluster.NODE, cluster.DATA).stop()


def folders(data):
    return [folder for folder in _cgroup_folders(data.name) if folder.exists()]


@pytest.mark.root
def test_a_cluster_whose_run_was_killed_is_not_found_but_removed(elsewhere):
    holder = Holder(cluster.NODE, elsewhere)
    holder.start()
    inside = holder.pid()
    assert folders(elsewhere)
    cluster._remember(cluster.State(owner=Record(pid=os.getpid(), began=1)))
    assert cluster.find() is None
    cluster.down()
    assert not Path(f"/proc/{inside}").exists()
    assert not folders(elsewhere)
    assert not elsewhere.exists()
    assert list((elsewhere.parent / "state").iterdir()) == [elsewhere.parent / "state" / "lock"]


@pytest.mark.root
def test_a_cluster_that_stays_or_whose_owner_runs_is_found(elsewhere):
    Holder(cluster.NODE, elsewhere).start()
    for owner in (None, record(os.getpid())):
        cluster._remember(cluster.State(owner=owner))
        found = cluster.find()
        assert found is not None
        assert found.kubeconfig == elsewhere / "admin.kubeconfig"


@pytest.mark.root
def test_the_node_has_its_own_paths_and_leaves_the_machine_alone(elsewhere):
    before = Path("/proc/self/mountinfo").read_text().splitlines()
    holder = Holder(cluster.NODE, elsewhere)
    holder.start()
    own = [f"{folder}/{elsewhere.name}" for folder in ("/run", "/var/lib", "/var/log", "/var/lib/kubelet")]
    holder.run("mkdir", *own)
    assert holder.run("hostname").stdout.strip() == cluster.NODE
    assert holder.run("cat", "/proc/sys/vm/overcommit_memory").stdout == "1\n"
    assert (holder.directory / "kubelet" / elsewhere.name).is_dir()
    assert not [path for path in own if Path(path).exists()]
    after = Path("/proc/self/mountinfo").read_text().splitlines()
    assert not [line for line in after if line not in before and str(elsewhere) in line]


def test_nothing_is_found_where_nothing_was_started(elsewhere):
    assert cluster.find() is None
    cluster.down()
