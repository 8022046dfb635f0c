from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing

import pytest

from eventually import eventually
from weft.node.registrations import DirectoryRefused, parse_registration, watch_registrations

GOOD = {
    "namespace": "shop",
    "pod": "web-0",
    "pod_uid": "1234",
    "service_account": "web",
    "token_file": "/run/tokens/web-0",
    "socket": "/run/sds/web-0/sds.sock",
}


def text(**fields) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


@pytest.fixture
def directory(tmp_path):
    made = tmp_path / "workloads"
    made.mkdir(mode=0o700)
    return made


async def within(batches):
    async with asyncio.timeout(30):
        return {name: each.name for name, each in (await anext(batches)).items()}


def test_a_registration_has_identity_paths_and_key():
    made = parse_registration(text(key="RSA-2048", network_namespace="/run/netns/x"))
    assert str(made.identity) == "spiffe://cluster.local/ns/shop/sa/web"
    assert (made.name, made.key, made.uid) == ("shop/web-0", "RSA-2048", 1337)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"namespace": "Shop"}, "is not spiffe://"),
        ({"service_account": "a/b"}, "is not spiffe://"),
        ({"trust_domain": "x/ns/y"}, "is not spiffe://"),
        ({"pod": ""}, "must not be empty"),
        ({"pod": "a/b"}, "must not be empty"),
        ({"pod_uid": ""}, "must not be empty"),
        ({"token_file": "token"}, "token_file must be an absolute path"),
        ({"socket": "/run/../etc/x"}, "socket must be an absolute path"),
        ({"socket": ""}, "are required"),
        ({"socket": "/" + "x" * 110}, "socket is too long"),
        ({"network_namespace": "netns"}, "network_namespace must be an absolute path"),
        ({"key": "DSA"}, "Invalid enum value"),
        ({"uid": 0}, "must not be root"),
        ({"more": 1}, "unknown: 'more'; required fields: namespace, pod,"),
        ({"pod": 7}, "Expected `str`"),
    ],
)
def test_an_invalid_registration_is_an_error_with_a_reason(fields, why):
    with pytest.raises(ValueError, match=why):
        parse_registration(text(**fields))


def test_all_errors_are_reported_at_once():
    with pytest.raises(ValueError) as names:
        parse_registration(b'{"name": "web-0", "namespace": "shop", "token": "/x"}')
    assert "unknown: 'name', 'token'; missing: pod, pod_uid, token_file, socket; required fields: " in str(names.value)
    with pytest.raises(ValueError) as values:
        parse_registration(text(pod="", socket="s", uid=0))
    assert all(word in str(values.value) for word in ("must not be empty", "socket must be", "must not be root"))


async def test_reports_what_is_in_force_while_a_file_is_broken(directory, caplog):
    (directory / "a.json").write_bytes(b"{}")
    (directory / "b.json").write_bytes(text())
    async with aclosing(watch_registrations(directory)) as batches:
        await within(batches)
        (directory / "b.json").write_bytes(b"{}")
        (directory / "c.json").write_bytes(text(pod="web-1", socket="/run/sds/web-1/sds.sock"))
        await within(batches)
    said = [record.message for record in caplog.records]
    assert [each.rpartition("; ")[2] for each in said] == [
        "until the file is corrected, no registration is in force",
        "until the file is corrected, its last valid registration is in force",
    ]


@pytest.mark.parametrize("broken", [b"[" * 60_000, b'{"a":' * 10_000, b"", b"{", b"[]", b"\xff", b"null"])
def test_a_file_that_is_not_a_registration_is_reported(broken):
    with pytest.raises(ValueError):
        parse_registration(broken)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
async def test_a_directory_that_others_can_open_is_refused(directory, mode):
    directory.chmod(mode)
    with pytest.raises(DirectoryRefused) as refused:
        await anext(watch_registrations(directory))
    assert "is open to other users" in str(refused.value) and "chmod 700" in refused.value.problem.hint


async def test_a_directory_that_is_missing_or_no_directory_is_refused(tmp_path):
    with pytest.raises(DirectoryRefused, match="mkdir"):
        await anext(watch_registrations(tmp_path / "nowhere"))
    (tmp_path / "file").touch(mode=0o600)
    with pytest.raises(DirectoryRefused, match="is not a directory"):
        await anext(watch_registrations(tmp_path / "file"))


async def test_files_come_change_and_go(directory):
    (directory / "web.json").write_bytes(text())
    (directory / "README").write_text("not one of them")
    async with aclosing(watch_registrations(directory)) as batches:
        assert await within(batches) == {"web.json": "shop/web-0"}
        (directory / "api.json").write_bytes(text(pod="api-0", socket="/run/sds/api-0/sds.sock"))
        assert await within(batches) == {"api.json": "shop/api-0", "web.json": "shop/web-0"}
        (directory / "web.json").unlink()
        assert await within(batches) == {"api.json": "shop/api-0"}


async def test_the_same_pod_or_the_same_socket_twice_is_the_first_ones(directory, caplog):
    (directory / "a.json").write_bytes(text())
    (directory / "b.json").write_bytes(text(socket="/run/other/sds.sock"))
    (directory / "c.json").write_bytes(text(pod="api-0"))
    async with aclosing(watch_registrations(directory)) as batches:
        assert await within(batches) == {"a.json": "shop/web-0"}
    assert (
        "b.json is ignored: another file already registers shop/web-0" in caplog.text
        and "c.json is ignored: another file already registers shop/api-0" in caplog.text
    )


async def test_what_is_not_ours_alone_is_not_read(directory, caplog, tmp_path):
    (directory / "web.json").write_bytes(text())
    (directory / "web.json").chmod(0o666)
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_bytes(text(pod="api-0"))
    (directory / "link.json").symlink_to(elsewhere)
    os.mkfifo(directory / "pipe.json")
    (directory / "big.json").write_bytes(b" " * 70_000)
    async with aclosing(watch_registrations(directory)) as batches:
        assert await within(batches) == {}
    assert all(name in caplog.text for name in ("web.json", "link.json", "pipe.json", "big.json"))


async def test_while_the_directory_is_missing_or_open_to_others_the_registrations_stay(directory, caplog):
    (directory / "web.json").write_bytes(text())
    async with aclosing(watch_registrations(directory)) as batches:
        assert await within(batches) == {"web.json": "shop/web-0"}
        waiting = asyncio.ensure_future(anext(batches))
        moved = directory.rename(directory.with_name("moved"))
        await eventually(lambda: "the last registrations stay in force" in caplog.text)
        assert not waiting.done()
        (moved / "web.json").write_bytes(text(service_account="api"))
        moved.rename(directory)
        async with asyncio.timeout(30):
            assert (await waiting)["web.json"].service_account == "api"
