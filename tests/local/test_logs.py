from __future__ import annotations

import asyncio
import subprocess

import pytest

from weft.local.logs import MOST_LINE, LogFile, PodLog


async def pump(log: LogFile, *data: bytes) -> None:
    stream = asyncio.StreamReader()
    for chunk in data:
        stream.feed_data(chunk)
    stream.feed_eof()
    await log.pump(stream)


async def test_keeps_lines_however_they_arrive(tmp_path):
    log = LogFile(tmp_path / "app.log")
    await pump(log, b"one\ntw", b"o\r\nbad \xff\nunfinished")
    assert log.tail() == ["one", "two", "bad �", "unfinished"]
    assert log.tail(2) == ["bad �", "unfinished"]


async def test_a_line_without_an_end_is_cut_and_memory_stays_bounded(tmp_path):
    log = LogFile(tmp_path / "app.log")
    await pump(log, b"x" * (MOST_LINE * 3), b"\nnext\n")
    assert all(len(line) <= MOST_LINE for line in log.tail())
    assert log.tail()[-1] == "next"


def test_the_file_is_bounded_and_the_newest_lines_are_kept(tmp_path):
    log = LogFile(tmp_path / "app.log", most_bytes=1000)
    for number in range(500):
        log.write(f"line {number}")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2000
    assert log.tail(1) == ["line 499"]
    assert len(log.tail()) > 80


async def test_a_follower_sees_new_lines_until_the_log_closes(tmp_path):
    log = LogFile(tmp_path / "app.log")
    log.write("before")
    seen: list[str] = []

    async def follow():
        async for line in log.follow():
            seen.append(line)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    log.write("after")
    log.close()
    await task
    assert seen == ["after"]


async def test_a_follower_that_does_not_read_uses_bounded_memory(tmp_path):
    log = LogFile(tmp_path / "app.log")
    lines = log.follow()
    first = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    for number in range(5000):
        log.write(str(number))
    log.close()
    assert await first in {"0", "4001"}
    assert len([line async for line in lines]) <= 1000


async def test_a_flood_of_lines_is_dropped_and_the_log_shows_the_loss(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.local.logs.MOST_RATE", 1000)
    log = LogFile(tmp_path / "app.log")
    await pump(log, b"x\n" * 50_000)
    log.write("after")
    assert log.tail() == [
        "weft: 50000 lines were lost: the output was too fast, or the log could not be written",
        "after",
    ]


@pytest.fixture
def small_disk(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "weft-test", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.root
def test_a_full_disk_loses_lines_and_the_log_shows_how_many(small_disk):
    log = PodLog(small_disk).app
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    for number in range(10):
        log.write(f"lost {number}")
    filler.unlink()
    log.write("back")
    assert log.tail() == ["weft: 10 lines were lost: the output was too fast, or the log could not be written", "back"]
