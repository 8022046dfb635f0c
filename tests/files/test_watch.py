import asyncio
import contextlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from weft.files import watch as watching
from weft.files.watch import DirectoryMissing, watch


def service(name, port=80):
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{ports: "
        f"[{{port: {port}}}]}}\n"
    )


class Mesh:
    """A watched directory, and the objects that result from all batches so far."""

    def __init__(self, root, batches):
        self.root, self._batches = root, batches
        self.live, self.problems, self.history = {}, (), []

    def write(self, path, *documents):
        (self.root / path).write_text("---\n".join(documents))

    async def batch(self):
        batch = await asyncio.wait_for(anext(self._batches), 20)
        for change in batch.changes:
            port = change.document and change.document.body["spec"]["ports"][0]["port"]
            self.history.append((change.key.name, port))
            if port is None:
                del self.live[change.key.name]
            else:
                self.live[change.key.name] = port
        self.problems = batch.problems
        return batch

    async def until(self, live=None, problem=None):
        """Take batches until the objects are `live`, or until a problem contains the text `problem`."""
        while (live is not None and self.live != live) or (problem is not None and not self.says(problem)):
            await self.batch()

    def says(self, text):
        return any(text in str(problem) for problem in self.problems) if text else not self.problems


@pytest.fixture
async def mesh(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "SWEEP", 1e9)  # no sweeps: changes must be found by events
    root = tmp_path / "mesh"
    root.mkdir()
    async with contextlib.aclosing(watch(root, settle=0.2)) as batches:
        mesh = Mesh(root, batches)
        assert (await mesh.batch()).changes == ()
        yield mesh


async def test_a_missing_directory_is_an_error_at_once(tmp_path):
    with pytest.raises(DirectoryMissing, match="mkdir -p"):
        await anext(watch(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryMissing):
        await anext(watch(tmp_path / "file"))


async def test_the_first_batch_is_everything(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "sub/b.yml").write_text(service("b"))
    (tmp_path / "c.json").write_text('{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c"}}')
    async with contextlib.aclosing(watch(tmp_path)) as batches:
        batch = await anext(batches)
    assert [change.key.name for change in batch.changes] == ["c", "a", "b"]
    assert batch.changes[1].document.directory == str(tmp_path)


async def test_saving_adding_and_deleting_take_effect(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    mesh.write("a.yaml", service("a", 81), service("b"))
    await mesh.until({"a": 81, "b": 80})
    mesh.write("a.yaml", service("b"))
    await mesh.until({"b": 80})
    (mesh.root / "a.yaml").unlink()
    await mesh.until({})


async def test_an_editors_atomic_save_is_one_change(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    # As vim does: a probe file, the old file moved away, a new one written, the backup removed.
    mesh.write("4913")
    (mesh.root / "4913").unlink()
    (mesh.root / "a.yaml").rename(mesh.root / "a.yaml~")
    mesh.write(".a.yaml.swp", "junk")
    mesh.write("a.yaml", service("a", 81))
    (mesh.root / "a.yaml~").unlink()
    await mesh.until({"a": 81})
    # As most others do: a new file moved over the old one.
    mesh.write(".a.yaml.tmp", service("a", 82))
    (mesh.root / ".a.yaml.tmp").rename(mesh.root / "a.yaml")
    await mesh.until({"a": 82})
    assert mesh.history == [("a", 80), ("a", 81), ("a", 82)]


async def test_renaming_a_file_deletes_nothing(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    (mesh.root / "a.yaml").rename(mesh.root / "b.yaml")
    mesh.write("marker.yaml", service("marker"))
    await mesh.until({"a": 80, "marker": 80})
    (mesh.root / "marker.yaml").unlink()
    await mesh.until({"a": 80})  # if `a` had been missing, it would be deleted by then
    assert ("a", None) not in mesh.history


async def test_subdirectories_come_and_go(mesh):
    (mesh.root / "x/y").mkdir(parents=True)
    mesh.write("x/y/a.yaml", service("a"))
    await mesh.until({"a": 80})
    mesh.write("x/y/a.yaml", service("a", 81))
    await mesh.until({"a": 81})
    shutil.copytree(mesh.root / "x", mesh.root.parent / "made")
    (mesh.root.parent / "made/y/a.yaml").write_text(service("b"))
    (mesh.root.parent / "made").rename(mesh.root / "z")
    await mesh.until({"a": 81, "b": 80})
    shutil.rmtree(mesh.root / "x")
    await mesh.until({"b": 80})


async def test_garbage_is_a_problem_and_removes_nothing(mesh):
    mesh.write("a.yaml", service("a"), service("b"))
    await mesh.until({"a": 80, "b": 80})
    (mesh.root / "a.yaml").write_bytes(os.urandom(1000) + b"\xff")
    await mesh.until(problem="a.yaml")
    mesh.write("b.yaml", service("c"))
    await mesh.until({"a": 80, "b": 80, "c": 80})
    mesh.write("a.yaml", service("a", 81))
    await mesh.until({"a": 81, "c": 80}, problem="")


async def test_a_half_written_file_removes_nothing_and_the_rest_arrives(mesh):
    mesh.write("a.yaml", service("a"), service("b"))
    await mesh.until({"a": 80, "b": 80})
    with (mesh.root / "a.yaml").open("w") as file:
        file.write(service("a", 81) + "---\napiVersion: v1\nkind: Service\nmetadata: {name")
        file.flush()
        await mesh.until({"a": 81, "b": 80}, problem="this is not YAML")
        file.write(": b, namespace: shop}\nspec: {ports: [{port: 82}]}\n")
    await mesh.until({"a": 81, "b": 82}, problem="")
    assert ("b", None) not in mesh.history


async def test_an_empty_moment_between_truncating_and_writing_removes_nothing(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    with (mesh.root / "a.yaml").open("w") as file:
        mesh.write("b.yaml", service("b"))  # this event causes a scan while a.yaml is empty
        await mesh.until({"a": 80, "b": 80})
        file.write(service("a", 81))
    await mesh.until({"a": 81, "b": 80})
    assert ("a", None) not in mesh.history


async def test_a_directory_that_goes_away_keeps_everything_until_it_is_back(mesh):
    mesh.write("a.yaml", service("a"))
    mesh.write("b.yaml", service("b"))
    await mesh.until({"a": 80, "b": 80})
    shutil.rmtree(mesh.root)
    await mesh.until(problem="the directory cannot be read any more")
    assert mesh.live == {"a": 80, "b": 80}
    mesh.root.mkdir()
    mesh.write("a.yaml", service("a", 81))
    await mesh.until({"a": 81}, problem="")
    mesh.write("a.yaml", service("a", 82))
    await mesh.until({"a": 82})


async def test_a_directory_that_is_filled_slowly_after_it_was_away_loses_nothing(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    (mesh.root / "a.yaml").unlink()
    mesh.write("b.yaml", service("b"))
    await mesh.until({"a": 80, "b": 80})  # the watcher knows that `a` is in no file
    shutil.rmtree(mesh.root)
    await mesh.until(problem="the directory cannot be read any more")
    mesh.root.mkdir()
    await mesh.until(problem="")
    mesh.write("a.yaml", service("a", 81))
    mesh.write("b.yaml", service("b", 81))
    await mesh.until({"a": 81, "b": 81})
    assert ("a", None) not in mesh.history


async def test_links_out_of_the_directory_are_polled(mesh, monkeypatch):
    monkeypatch.setattr(watching, "SWEEP", 0.1)
    outside = mesh.root.parent / "outside.yaml"
    outside.write_text(service("a"))
    (mesh.root / "a.yaml").symlink_to(outside)
    await mesh.until({"a": 80})
    outside.write_text(service("a", 81))
    await mesh.until({"a": 81})


async def test_without_kernel_events_the_directory_is_polled(tmp_path, monkeypatch):
    def none_left(*_, **__):
        raise OSError(28, "No space left on device")  # the kernel's error when all watches are in use

    monkeypatch.setattr(watching, "FileEvents", none_left)
    async with contextlib.aclosing(watch(tmp_path, settle=0.2)) as batches:
        mesh = Mesh(tmp_path, batches)
        await mesh.batch()
        mesh.write("a.yaml", service("a"))
        await mesh.until({"a": 80})
        (mesh.root / "a.yaml").unlink()
        await mesh.until({})


async def test_another_directory_moved_into_place_is_read(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    other = mesh.root.parent / "other"
    other.mkdir()
    (other / "b.yaml").write_text(service("b"))
    mesh.root.rename(mesh.root.parent / "old")
    other.rename(mesh.root)
    await mesh.until({"b": 80})
    mesh.write("b.yaml", service("b", 81))
    await mesh.until({"b": 81})


async def test_a_config_map_mount_is_swapped_as_a_whole(mesh):
    for version, port in (("..1", 80), ("..2", 81)):
        (mesh.root / version).mkdir()
        mesh.write(f"{version}/a.yaml", service("a", port))
    (mesh.root / "..data").symlink_to("..1")
    (mesh.root / "a.yaml").symlink_to("..data/a.yaml")
    await mesh.until({"a": 80})
    (mesh.root / "..tmp").symlink_to("..2")
    (mesh.root / "..tmp").rename(mesh.root / "..data")
    await mesh.until({"a": 81})


async def test_an_unreadable_file_keeps_what_it_held(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    (mesh.root / "sick").symlink_to("/proc/self/mem")
    (mesh.root / "sick").rename(mesh.root / "a.yaml")
    await mesh.until(problem="the file cannot be read: Input/output error")
    assert mesh.live == {"a": 80}
    (mesh.root / "a.yaml").unlink()
    await mesh.until({}, problem="")


async def test_two_writers_end_with_what_was_written_last(mesh):
    def write(name):
        for port in range(1, 40):
            mesh.write(f".{name}.tmp", service(name, port), service("both", port))
            (mesh.root / f".{name}.tmp").rename(mesh.root / f"{name}.yaml")

    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    await mesh.until({"a": 39, "b": 39, "both": 39}, problem="is also defined at")
    for writer in writers:
        writer.join()


async def test_a_name_that_is_not_utf8_is_no_obstacle(mesh):
    mesh.write(os.fsdecode(b"\xff.yaml"), service("a"))
    await mesh.until({"a": 80})
    mesh.write(os.fsdecode(b"\xff.yaml"), service("a", 81))
    await mesh.until({"a": 81})


async def test_a_change_while_the_last_batch_is_still_worked_on_is_not_missed(mesh):
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    mesh.write("a.yaml", service("a", 81))  # no wait for events is running now
    mesh.write("b.yaml", service("b"))
    await mesh.until({"a": 81, "b": 80})


async def test_other_files_beside_the_yaml_do_not_matter(mesh):
    mesh.write("app.log", "x")
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    assert mesh.problems == ()


async def test_a_directory_that_is_made_anew_is_watched(mesh):
    for port in range(80, 84):  # the file system may give the new directory the inode of the old one
        (mesh.root / "sub").mkdir()
        mesh.write("sub/a.yaml", service("a", port))
        await mesh.until({"a": port})
        mesh.write("sub/a.yaml", service("a", port + 100))
        await mesh.until({"a": port + 100})
        shutil.rmtree(mesh.root / "sub")


async def test_a_link_to_the_root_directory_causes_no_watches_there(mesh):
    (mesh.root / "everything").symlink_to("/")
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80}, problem="the link to / is not followed")
    watches = 0
    for file in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            watches += file.read_text().count("inotify wd:")
    assert watches < 100


async def test_a_changed_weftignore_takes_effect(mesh):
    mesh.write("a.yaml", service("a"))
    mesh.write("b.yaml", service("b"))
    await mesh.until({"a": 80, "b": 80})
    mesh.write(".weftignore", "b.yaml\n")
    await mesh.until({"a": 80})
    (mesh.root / ".weftignore").unlink()
    await mesh.until({"a": 80, "b": 80})


async def test_json_of_other_tools_is_not_read(mesh):
    mesh.write("package.json", '{"name": "x", "dependencies": {"a": "1"}}')
    mesh.write("settings.json", "// not even JSON")
    mesh.write("data.json", '[{"kind": "books#volume"}]')
    mesh.write("a.yaml", service("a"))
    await mesh.until({"a": 80})
    assert mesh.problems == ()
    mesh.write("b.json", '{"kind": "Service", "metadata": {"name": "b"}}')
    await mesh.until(problem="b.json:1: error: `apiVersion` is missing")
