import os

import pytest

from weft.base.problem import Severity
from weft.files.directory import Unreadable
from weft.files.scan import holds_objects, look, problems_of, read, shown


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json", "a.b.yaml"])
def test_files_that_hold_objects(name):
    assert holds_objects(name)


@pytest.mark.parametrize(
    "name", [".a.yaml", "a.yaml~", ".a.yaml.swp", ".#a.yaml", "#a.yaml#", "4913", "a.txt", "a.yaml.bak"]
)
def test_files_that_do_not(name):
    assert not holds_objects(name)


def test_looks_into_directories_and_through_links(tmp_path):
    (tmp_path / "sub/.git").mkdir(parents=True)
    for name in ("a.yaml", "sub/b.yml", "sub/.git/c.yaml", "d.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "sub/up").symlink_to(tmp_path)  # a cycle
    (tmp_path / "l.yaml").symlink_to("d.txt")
    assert set(look(str(tmp_path), "mesh").files) == {"a.yaml", "sub/b.yml", "l.yaml"}


def test_a_changed_file_looks_different(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("a")
    before = look(str(tmp_path), "mesh").files["a.yaml"]
    assert look(str(tmp_path), "mesh").files["a.yaml"] == before
    file.write_text("bc")
    assert look(str(tmp_path), "mesh").files["a.yaml"] != before


@pytest.mark.parametrize("below", ["", "ca"])
def test_a_ca_among_the_files_is_passed_over_with_one_warning(tmp_path, below):
    kept = tmp_path / below
    kept.mkdir(exist_ok=True)
    for name in ("authority.json", "authority.lock", "bundle.pem"):
        (kept / name).write_text("{}")
    (kept / "a.yaml").write_text("")
    seen = look(str(tmp_path), "mesh")
    assert set(seen.files) == {f"{below}/a.yaml".lstrip("/")}
    (problem,) = problems_of(seen)
    assert problem.severity is Severity.WARNING and problem.where.file == f"mesh/{below}".rstrip("/")
    (kept / "authority.lock").unlink()  # without the lock it is an ordinary file with that name
    assert len(look(str(tmp_path), "mesh").files) == 2


def test_no_directory_is_an_error(tmp_path):
    with pytest.raises(OSError):
        look(str(tmp_path / "none"), "mesh")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        look(str(tmp_path / "file"), "mesh")


def test_reads_files_and_reports_unreadable_ones(tmp_path):
    root = str(tmp_path)
    (tmp_path / "a.yaml").write_bytes(b"x")
    (tmp_path / "nowhere.yaml").symlink_to("none")
    (tmp_path / "circle.yaml").symlink_to("circle.yaml")
    (tmp_path / "sick.yaml").symlink_to("/proc/self/mem")  # its first page cannot be read
    os.mkfifo(tmp_path / "pipe.yaml")
    assert read(root, "a.yaml", "mesh") == b"x"
    assert read(root, "gone.yaml", "mesh") is None
    told = {}
    for name in ("nowhere", "circle", "sick", "pipe"):
        found = read(root, f"{name}.yaml", "mesh")
        assert isinstance(found, Unreadable)
        told[name] = str(found.problem)
    assert told["nowhere"] == (
        "mesh/nowhere.yaml:1: error: the file cannot be read: it is a dangling symbolic link; its previous objects "
        "stay in effect "
        "(hint: repair or remove the link)"
    )
    assert "Input/output error" in told["sick"]
    assert "not a regular file" in told["pipe"]
    assert set(look(root, "mesh").files) >= {"a.yaml", "nowhere.yaml", "sick.yaml", "pipe.yaml"}


def test_a_name_that_is_not_utf8_can_be_read_and_shown(tmp_path):
    name = os.fsdecode(b"\xff.yaml")
    (tmp_path / name).symlink_to("none")
    assert name in look(str(tmp_path), "mesh").files
    found = read(str(tmp_path), name, "mesh")
    assert str(found.problem).startswith("mesh/\ufffd.yaml:1: ")


def test_files_below_an_unreadable_directory_count_as_present(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    real = os.scandir

    def scandir(path):
        if str(path).endswith("/sub"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may read every directory, so the error is simulated
    seen = look(str(tmp_path), "mesh")
    assert seen.hides("sub/a.yaml")
    assert not seen.hides("a.yaml")
    assert [str(problem) for problem in problems_of(seen)] == [
        "mesh/sub: error: the directory cannot be read: Permission denied (hint: objects that were read from it before "
        "stay in effect)"
    ]
    assert list(problems_of(None)) == []


def test_a_path_is_shown_without_detours_but_never_as_another_place(tmp_path):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a" / "deep")
    assert shown(f"{tmp_path}/a/../b") == f"{tmp_path}/b"
    assert shown(f"{tmp_path}/b/") == f"{tmp_path}/b"
    assert shown(f"{tmp_path}/link/../x") == f"{tmp_path}/a/x"
    assert shown("some/where") == "some/where"


def scanned(tmp_path):
    return set(look(str(tmp_path), "mesh").files)


def test_a_link_to_a_directory_above_the_mesh_is_not_followed_and_reported(tmp_path):
    mesh = tmp_path / "mesh"
    mesh.mkdir()
    (mesh / "a.yaml").write_text("")
    (tmp_path / "outside.yaml").write_text("")
    (mesh / "everything").symlink_to("/")
    (mesh / "up").symlink_to("..")
    seen = look(str(mesh), "mesh")
    assert set(seen.files) == {"a.yaml"}
    assert [problem.where.file for problem in problems_of(seen)] == ["mesh/everything", "mesh/up"]
    assert "the link to / is not followed" in str(next(iter(problems_of(seen))))


def test_a_link_to_a_directory_beside_the_mesh_is_followed(tmp_path):
    (tmp_path / "mesh").mkdir()
    (tmp_path / "common").mkdir()
    (tmp_path / "common/b.yaml").write_text("")
    (tmp_path / "mesh/common").symlink_to("../common")
    assert scanned(tmp_path / "mesh") == {"common/b.yaml"}


@pytest.mark.parametrize("target", ["/proc", "/sys", "/proc/self/fd", "/dev"])
def test_a_link_into_the_kernels_directories_is_not_followed(tmp_path, target):
    (tmp_path / "link").symlink_to(target)
    assert look(str(tmp_path), "mesh").files == {}


def test_installed_packages_and_repositories_are_not_read(tmp_path):
    for name in ("node_modules/x", ".git", ".venv/lib", "python/lib", "__pycache__", "kept"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.yaml").write_text("")
    (tmp_path / "python/pyvenv.cfg").write_text("")
    assert scanned(tmp_path) == {"kept/a.yaml"}


def test_what_weftignore_lists_is_not_read(tmp_path):
    for name in ("a.yaml", "charts/b.yaml", "charts/deep/c.yaml", "values.yaml", "sub/values.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".weftignore").write_text("# not ours\ncharts/\n/values.yaml\n")
    assert scanned(tmp_path) == {"a.yaml", "sub/values.yaml"}


def test_an_unreadable_weftignore_is_reported(tmp_path):
    (tmp_path / ".weftignore").mkdir()
    (problem,) = problems_of(look(str(tmp_path), "mesh"))
    assert problem.where.file == "mesh/.weftignore"
    assert problem.severity is Severity.WARNING


def test_there_is_a_limit_for_directories(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.files.scan.MOST_DIRECTORIES", 5)
    for number in range(10):
        (tmp_path / f"d{number}").mkdir()
    (problem,) = problems_of(look(str(tmp_path), "mesh"))
    assert "the directory has more than 5 directories; the rest is not read" in str(problem)
    assert "list what is not part of the mesh in mesh/.weftignore" in str(problem)
