"""Invalid input is reported with file and line, and does not affect valid objects."""

from __future__ import annotations

import asyncio
import os
import random

import pytest
import pytest_asyncio

from e2e.objects import destination_rule, http_service, text, to, virtual_service, workload
from eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = text(virtual_service("app", {"route": [to("app", "v1")]}))


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(
            workload("app-v1", control=control, serve="http=8080", app="app", version="v1"),
            workload("app-v2", control=control, serve="http=8080", app="app", version="v2"),
            http_service("app"),
            destination_rule("app", "v1", "v2"),
        ),
        "route.yaml": GOOD,
    }


@pytest_asyncio.fixture(loop_scope="module")
async def mesh(whole_mesh):
    assert whole_mesh.problems() == []
    yield whole_mesh
    (whole_mesh.directory / "bad.yaml").unlink(missing_ok=True)
    whole_mesh.write("route.yaml", GOOD)
    await eventually(lambda: whole_mesh.problems() == [])


async def problem(mesh, *words):
    """The problem that contains all these words; the mesh continues to run as it was."""
    found = await eventually(lambda: [each for each in mesh.problems() if all(word in each for word in words)])
    await serves(mesh, "v1")
    return found[0]


async def serves(mesh, version):
    async def there():
        answers = await mesh.requests("client", "http://app/", 10)
        return {(answer["status"], answer["body"]["version"]) for answer in answers} == {(200, version)}

    await eventually(there)


async def test_a_mistyped_field_is_named_with_its_line_and_the_right_word(mesh):
    mesh.write("route.yaml", GOOD.replace("  http:\n  - route:", "  http:\n  - retires: {attempts: 1}\n    route:"))
    found = await problem(mesh, "route.yaml", "retires")
    assert "did you mean" in found
    assert "retries" in found
    line = 1 + (mesh.directory / "route.yaml").read_text().splitlines().index("  - retires: {attempts: 1}")
    assert f"route.yaml:{line}" in found


async def test_a_bad_object_does_not_stop_a_good_one_in_the_same_file(mesh):
    bad = text(virtual_service("app", {"route": "nowhere"}))
    more = text(
        virtual_service("more", {"directResponse": {"status": 299}}, hosts=["app-more"]), http_service("app-more")
    )
    mesh.write("bad.yaml", more + "---\n" + bad.replace("name: app", "name: broken"))
    await problem(mesh, "bad.yaml", "broken")

    async def there():
        return (await mesh.get("client", "http://app-more/"))["status"] == 299

    await eventually(there)


async def test_a_file_of_garbage_changes_nothing(mesh):
    (mesh.directory / "bad.yaml").write_bytes(random.Random(7).randbytes(100_000))
    await problem(mesh, "bad.yaml")


async def test_garbage_in_place_of_a_good_file_removes_nothing(mesh):
    (mesh.directory / "route.yaml").write_bytes(b"\x00\xff" * 1000)
    await problem(mesh, "route.yaml")


async def test_a_half_written_file_changes_nothing_until_it_is_whole(mesh):
    whole = text(virtual_service("app", {"route": [to("app", "v2")]}))
    with (mesh.directory / "route.yaml").open("w") as file:
        file.write(whole[: whole.index("destination") + 15])
        file.flush()
        await problem(mesh, "route.yaml")
        file.write(whole[whole.index("destination") + 15 :])
    await serves(mesh, "v2")
    await eventually(lambda: mesh.problems() == [])


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("- just\n- a\n- list\n", id="a list"),
        pytest.param("apiVersion: v1\n", id="no kind"),
        pytest.param("apiVersion: v1\nkind: Srevice\nmetadata: {name: x}\n", id="an unknown kind"),
        pytest.param("apiVersion: v1\nkind: Service\n", id="no metadata"),
        pytest.param("apiVersion: v1\nkind: Service\nmetadata: {name: 'Not A Name'}\nspec: {}\n", id="a bad name"),
        pytest.param("a: &a [*a, *a]\n", id="an alias of itself"),
        pytest.param("a: {b: [c, d\n", id="an open bracket"),
        pytest.param("\tkey: value\n", id="a tab"),
        pytest.param("!!python/object/apply:os.system ['true']\n", id="a dangerous tag"),
        pytest.param("[" * 100_000, id="a deep nest"),
    ],
)
async def test_a_document_that_is_not_an_object_is_a_problem_with_its_file(mesh, content):
    mesh.write("bad.yaml", content)
    await problem(mesh, "bad.yaml")


async def test_a_yaml_alias_bomb_is_rejected_quickly(mesh):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    mesh.write("bad.yaml", "\n".join(lines))
    await problem(mesh, "bad.yaml")


async def test_a_regex_that_envoy_cannot_read_is_refused_with_its_line(mesh):
    match = [{"uri": {"regex": "/(?=ahead).*"}}]
    mesh.write("route.yaml", text(virtual_service("app", {"match": match, "route": [to("app", "v2")]})))
    await problem(mesh, "VirtualService shop/app")


async def test_a_route_to_an_undefined_subset_is_reported(mesh):
    mesh.write("bad.yaml", text(http_service("web"), virtual_service("web", {"route": [to("web", "v9")]})))
    found = await problem(mesh, "v9")
    assert "bad.yaml" in found


async def test_an_unreadable_entry_of_the_directory_does_not_stop_the_mesh(mesh):
    (mesh.directory / "dangling.yaml").symlink_to("/nowhere/at/all.yaml")
    os.mkfifo(mesh.directory / "fifo.yaml")
    (mesh.directory / "directory.yaml").mkdir()
    mesh.write("route.yaml", text(virtual_service("app", {"route": [to("app", "v2")]})))
    await serves(mesh, "v2")
    for name in ("dangling.yaml", "fifo.yaml"):
        (mesh.directory / name).unlink()
    (mesh.directory / "directory.yaml").rmdir()


async def test_problems_go_with_their_cause(mesh):
    mesh.write("bad.yaml", "kind: [\n")
    await problem(mesh, "bad.yaml")
    (mesh.directory / "bad.yaml").unlink()
    await eventually(lambda: mesh.problems() == [])


async def test_many_invalid_saves_do_not_overload_the_mesh(mesh):
    rng = random.Random(11)
    await mesh.tell("client", "load_start", name="storm", url="http://app/", parallel=2)
    for _ in range(100):
        text_now = list(GOOD)
        for _ in range(rng.randrange(1, 6)):
            text_now[rng.randrange(len(text_now))] = rng.choice("{}[]:&*!|>'\"%@`\n\t x0")
        # In a separate file and in an unused namespace, because some of these are well-formed after all.
        mesh.write("bad.yaml", "".join(text_now).replace("namespace: shop", "namespace: nobodys"))
        await asyncio.sleep(0.005)
    (mesh.directory / "bad.yaml").unlink()
    await eventually(lambda: mesh.problems() == [])
    seen = await mesh.tell("client", "load_stop", name="storm")
    assert set(seen["statuses"]) == {"200"}, seen["failures"]
