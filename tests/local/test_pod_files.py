import subprocess

import pytest

from weft.local.pod_files import view_of
from weft.model.workload import ExecProbe, Probe, Workload
from weft.netns.view import mount_lines

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("bridge")]  # mounts need /run/netns, which a bridge makes

UID = 4242


@pytest.fixture
def mesh(tmp_path):
    """A mesh's directory that is closed to others, with readable files in it."""
    root = tmp_path / "mesh"
    for name in ("mesh.yaml", "gateway.key", "app.py", "library.py", "probe.sh", "data/table", "programs/run.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
        (root / name).chmod(0o755)
    for directory in ("data", "programs"):
        (root / directory).chmod(0o755)
    root.chmod(0o700)
    tmp_path.chmod(0o755)
    return root


def workload(mesh, *command, mounts=(), **more):
    return Workload("app", "shop", command, working_directory=str(mesh), mounts=tuple(map(str, mounts)), **more)


def shown(wanted, root):
    """Return the files below `root` that the app's user can read, in a real mount namespace."""
    look = f"exec setpriv --reuid={UID} --regid={UID} --clear-groups sh -c 'cd {root} && find . -type f -readable'"
    script = "\n".join([*mount_lines(view_of(wanted, UID), UID, UID), look])
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return sorted(line.removeprefix("./") for line in done.stdout.splitlines())


def test_a_closed_directory_shows_only_the_files_that_the_command_names(mesh):
    assert shown(workload(mesh, "python3", "app.py", "--port", "80"), mesh) == ["app.py"]
    assert shown(workload(mesh, "./app.py"), mesh) == ["app.py"]
    assert shown(workload(mesh, "sleep", "1"), mesh) == []
    assert shown(workload(mesh, "sh", "-c", "x" * 5_000), mesh) == []


def test_a_closed_directory_shows_the_program_of_the_readiness_probe(mesh):
    probe = Probe(check=ExecProbe(("./probe.sh",)))
    assert shown(workload(mesh, "python3", "app.py", readiness=probe), mesh) == ["app.py", "probe.sh"]


def test_a_closed_directory_shows_declared_mounts(mesh):
    mounts = (mesh / "data", mesh / "library.py")
    assert shown(workload(mesh, "python3", "app.py", mounts=mounts), mesh) == ["app.py", "data/table", "library.py"]


def test_a_declared_working_directory_is_shown_and_nothing_beside_it(mesh):
    inside = mesh / "programs"
    wanted = Workload("app", "shop", ("./run.py",), working_directory=str(inside), mounts=(str(inside),))
    assert shown(wanted, mesh) == ["programs/run.py"]


def test_a_closed_directory_that_is_declared_itself_is_shown(mesh):
    assert "gateway.key" in shown(workload(mesh, "sleep", mounts=(mesh,)), mesh)


def test_a_word_of_the_command_that_names_a_directory_shows_nothing(mesh):
    for word in (".", "..", "/", "../mesh", "data/.."):
        assert shown(workload(mesh, "ls", word), mesh) == []


def test_a_program_that_is_a_link_is_shown(mesh):
    (mesh / "app").symlink_to("app.py")
    assert shown(workload(mesh, "./app"), mesh) == ["app", "app.py"]


def test_a_directory_is_also_closed_if_one_above_it_is(mesh):
    mesh.chmod(0o755)
    mesh.parent.chmod(0o700)
    assert shown(workload(mesh, "python3", "app.py"), mesh) == ["app.py"]
    assert shown(workload(mesh, "sleep", "1"), mesh) == []


def test_an_open_directory_is_shown_as_it_is(mesh):
    for directory in (mesh, *list(mesh.parents)[:-1]):
        directory.chmod(directory.stat().st_mode | 0o055)
    assert view_of(workload(mesh, "sleep"), UID).hidden == ()


def test_a_missing_working_directory_is_left_to_the_start(mesh):
    assert view_of(workload(mesh / "none", "sleep"), UID).hidden == ()
