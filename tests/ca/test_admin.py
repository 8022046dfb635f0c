from __future__ import annotations

import asyncio
import socket
import stat
from datetime import timedelta

import pytest

from ca import making
from weft.ca.admin import SOCKET, AdminSocket, Wish, ask
from weft.ca.authority import Authority, Terms
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase


@pytest.fixture
async def authority(tmp_path):
    opened = Authority.open(tmp_path / "ca", making.DOMAIN, Terms(lifetime=timedelta(seconds=1), skew=timedelta(0)))
    running = asyncio.create_task(opened.run())
    yield opened
    running.cancel()
    opened.close()


@pytest.fixture
async def directory(authority, tmp_path):
    admin = AdminSocket(authority, tmp_path / "ca")
    await admin.open()
    yield tmp_path / "ca"
    await admin.close()
    assert not (tmp_path / "ca" / SOCKET).exists()


def answers(directory, **wish):
    return asyncio.to_thread(lambda: list(ask(directory, Wish(**wish))))


async def test_following_a_rotation_yields_each_phase(directory, authority):
    authority.sign(making.csr(), making.WEB)
    seen = await answers(directory, do="rotate", propagation=0.1, follow=True)
    assert [status.phase for status in seen] == [RotationPhase.ANNOUNCED, RotationPhase.FADING, RotationPhase.STEADY]
    assert seen[-1] == authority.status()


async def test_without_follow_each_command_returns_at_once(directory, authority):
    (only,) = await answers(directory, do="rotate", propagation=3600)
    assert only.phase is RotationPhase.ANNOUNCED
    (only,) = await answers(directory, do="status")
    assert only.phase is RotationPhase.ANNOUNCED
    (only,) = await answers(directory, do="switch")
    assert only.phase is RotationPhase.FADING


async def test_a_second_rotation_is_rejected_with_a_hint(directory, authority):
    authority.rotate()
    with pytest.raises(AuthorityError, match="a rotation is in progress") as error:
        await answers(directory, do="rotate")
    assert error.value.problem.hint


async def test_only_the_owner_can_open_it(directory):
    assert stat.S_IMODE((directory / SOCKET).stat().st_mode) == 0o600


async def test_invalid_and_silent_clients_do_not_affect_others(directory):
    def noise(content: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(directory / SOCKET))
            line.sendall(content)
            line.shutdown(socket.SHUT_WR)
            return line.recv(4096)

    for content in (
        b"noise\n",
        b"[]\n",
        b'{"do": 5}\n',
        b'{"do": "rotate", "propagation": -1}\n',
        b'{"do": "rotate", "propagation": 1e300}\n',
    ):
        assert b"invalid request" in await asyncio.to_thread(noise, content)
    await asyncio.to_thread(noise, b"")
    (status,) = await answers(directory, do="status")
    assert status.phase is RotationPhase.STEADY


async def test_a_follower_may_disconnect_during_a_rotation(directory, authority):
    def look_once():
        return next(ask(directory, Wish(do="rotate", propagation=0.2, follow=True))).phase

    assert await asyncio.to_thread(look_once) is RotationPhase.ANNOUNCED
    async with asyncio.timeout(20):
        async for bundle in authority.bundles():
            if len(bundle) == 1:
                break
    assert (await answers(directory, do="status"))[0].phase is RotationPhase.STEADY


async def test_a_socket_of_a_dead_process_is_replaced(authority, tmp_path):
    (tmp_path / "ca" / SOCKET).touch()
    admin = AdminSocket(authority, tmp_path / "ca")
    await admin.open()
    assert await answers(tmp_path / "ca", do="status")
    await admin.close()


def test_a_missing_socket_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(ask(tmp_path, Wish(do="status")))
