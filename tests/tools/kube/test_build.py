"""Builds produce complete programs or none, one at a time, and a waiting process reports what it waits for."""

import fcntl
import threading

import pytest

from tools.kube import build


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A `go` that copies its last argument's name into the program; it fails for kubelet."""
    script = tmp_path / "bin" / "go"
    script.parent.mkdir()
    (tmp_path / "released.mod").write_text("module k8s.io/kubernetes\n")
    script.write_text(f"""#!/bin/sh
case "$*" in
  *GOVERSION*) echo go1.26.0;;
  *download*) echo '{{"GoMod": "{tmp_path}/released.mod"}}';;
  *cmd/kubelet*) echo partial > "$6"; echo no such luck >&2; exit 1;;
  *) echo whole > "$6";;
esac
""")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return script


def test_builds_what_is_missing_and_only_that(compiler):
    told = []
    build.ensure(["etcd", "kubectl"], tell=told.append)
    assert build.path("etcd").read_text() == "whole\n"
    assert build.missing() == [name for name in build.PROGRAMS if name not in ("etcd", "kubectl")]
    assert [line.split()[1] for line in told if line.startswith("built")] == ["etcd", "kubectl"]
    told.clear()
    build.ensure(["etcd", "kubectl"], tell=told.append)
    assert told == []


def test_a_failed_build_leaves_no_program_and_raises_its_output(compiler):
    with pytest.raises(build.BuildFailed, match="no such luck"):
        build.ensure(["kubelet"], tell=lambda line: None)
    assert build.missing(["kubelet"]) == ["kubelet"]


def test_what_an_interrupted_build_left_is_not_taken_for_a_program(compiler):
    build.cache().mkdir(parents=True)
    left = build.cache() / ".etcd.4711.part"
    left.write_text("half")
    build.ensure(["etcd"], tell=lambda line: None)
    assert build.path("etcd").read_text() == "whole\n"
    assert not left.exists()


def test_waits_for_another_builder_and_goes_on_as_soon_as_its_own_are_there(compiler):
    build.cache().mkdir(parents=True)
    (build.cache() / "progress").write_text("building etcd (2 of 9)")
    told, waiting = [], threading.Event()

    def tell(line):
        told.append(line)
        waiting.set()

    with (build.cache() / "build.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiter = threading.Thread(target=lambda: build.ensure(["etcd"], tell=tell))
        waiter.start()
        assert waiting.wait(30)
        build.path("etcd").write_text("theirs")
        waiter.join(30)
        assert not waiter.is_alive()
    assert told == ["waiting for etcd: building etcd (2 of 9)"]
    assert build.path("etcd").read_text() == "theirs"
