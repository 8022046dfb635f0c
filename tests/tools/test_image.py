"""A layer's bytes depend only on its content; an error names what an image needs and lacks."""

import os
import tarfile

import pytest
from tools.image import ImageError, layer, packages
from tools.image.error import run


def fill(tree, *, order=("a.txt", "b.txt"), umask=0o022, time=1_000_000_000):
    before = os.umask(umask)
    try:
        (tree / "bin").mkdir(parents=True)
        for name in order:
            (tree / name).write_text(name)
            os.utime(tree / name, (time, time))
        (tree / "bin/program").write_bytes(b"\x7fELF")
        (tree / "bin/program").chmod(0o4755)
        (tree / "LICENSE").write_text("do what you like")
        (tree / "LICENSE").chmod(0o777)
        (tree / "link").symlink_to("/bin/program")
        (tree / "tmp").mkdir()
        (tree / "tmp").chmod(0o1777)
    finally:
        os.umask(before)


def test_the_same_files_make_the_same_layer_whatever_their_order_umask_and_time(tmp_path):
    one = layer.cached(tmp_path / "one", "x", "key", fill)
    other = layer.cached(
        tmp_path / "two", "x", "key", lambda tree: fill(tree, order=("b.txt", "a.txt"), umask=0o077, time=5)
    )
    assert one.blob.read_bytes() == other.blob.read_bytes()
    assert one.digest == other.digest
    assert one.diff_id != one.digest


def test_another_file_is_another_layer(tmp_path):
    one = layer.cached(tmp_path, "x", "one", fill)
    other = layer.cached(tmp_path, "x", "other", lambda tree: fill(tree, order=("a.txt", "c.txt")))
    assert one.diff_id != other.diff_id


def test_all_files_belong_to_root_and_none_is_setuid(tmp_path):
    with tarfile.open(layer.cached(tmp_path, "x", "key", fill).blob) as archive:
        members = {member.name: member for member in archive}
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, layer.TIME)}
    assert {name: oct(member.mode) for name, member in members.items()} == {
        "LICENSE": "0o644",  # marked as executable, but not a program
        "a.txt": "0o644",
        "b.txt": "0o644",
        "bin": "0o755",
        "bin/program": "0o755",  # without its setuid bit
        "link": "0o777",
        "tmp": "0o1777",
    }


def test_what_was_made_before_is_not_made_again(tmp_path):
    made = []

    def fill_once(tree):
        made.append(tree)
        fill(tree)

    first = layer.cached(tmp_path, "x", "key", fill_once)
    assert layer.cached(tmp_path, "x", "key", fill_once) == first
    assert len(made) == 1


def test_what_failed_half_way_is_made_anew(tmp_path):
    def fail(tree):
        fill(tree)
        raise ImageError("no space")

    with pytest.raises(ImageError):
        layer.cached(tmp_path, "x", "key", fail)
    assert layer.cached(tmp_path, "x", "key", fill).blob.is_file()


def test_the_cache_forgets_what_was_not_used_for_longest(tmp_path):
    for number in range(5):
        made = layer.cached(tmp_path, "x", f"key-{number}", fill)
        os.utime(made.directory, (number, number))
        if number == 3:
            layer.cached(tmp_path, "x", "key-0", fill)
    layer.cached(tmp_path, "y", "key-0", fill)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x-key-0", "x-key-2", "x-key-3", "x-key-4", "y-key-0"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("weft/cli/main.py", "weft/cli/main.py"),
        ("thing-1.data/platlib/thing.so", "thing.so"),
        ("thing-1.data/scripts/thing", None),
        ("thing-1.dist-info/RECORD", "thing-1.dist-info/RECORD"),
        ("thing/tests/test_it.py", None),
        ("thing/latest/module.py", "thing/latest/module.py"),
        ("thing/_native.pyi", None),
        ("thing/", None),
    ],
)
def test_a_wheels_file_is_placed_where_python_finds_it_unless_it_is_unused(name, place):
    assert packages._place(name) == place


def test_a_missing_program_is_named_with_what_to_do():
    with pytest.raises(ImageError, match=r"`no-such-program` is missing; use another machine"):
        run(["no-such-program"], hint="use another machine")


def test_a_failed_program_is_quoted():
    with pytest.raises(ImageError, match=r"look there\n.*No such file"):
        run(["ls", "/no-such-directory"], hint="look there")
