import asyncio
import contextlib

from weft.base.accepting import Acceptor, bind


@contextlib.asynccontextmanager
async def accepting(has_room, enter):
    acceptor = Acceptor(bind("127.0.0.1", 0, backlog=8), has_room, enter, name="test")
    try:
        yield acceptor
    finally:
        await acceptor.close()


async def test_each_connection_has_a_task_and_those_without_room_are_closed():
    entered, release = [], asyncio.Event()

    async def enter(connection, host, port):
        entered.append((host, port))
        await release.wait()
        connection.close()

    async with accepting(lambda _host: len(entered) < 1, enter) as acceptor:
        reader, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
        async with asyncio.timeout(20):
            while not entered:
                await asyncio.sleep(0.01)
            assert entered == [writer.get_extra_info("sockname")]
            assert list(acceptor.entering.values()) == ["127.0.0.1"]
            refused, other = await asyncio.open_connection("127.0.0.1", acceptor.port)
            with contextlib.suppress(ConnectionError):
                assert await refused.read() == b""
            release.set()
            assert await reader.read() == b""
        assert acceptor.entering == {}
        writer.close()
        other.close()


async def test_what_fails_at_accepting_ends_nothing(monkeypatch, caplog):
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, [OSError("too many open files")]
    entered = asyncio.Event()

    async def failing(listening):
        if failures:
            raise failures.pop()
        return await accept(listening)

    async def enter(connection, _host, _port):
        connection.close()
        entered.set()

    monkeypatch.setattr(loop, "sock_accept", failing)
    async with accepting(lambda _host: True, enter) as acceptor:
        _, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
        async with asyncio.timeout(20):
            await entered.wait()
        writer.close()
    assert "too many open files" in caplog.text


async def test_a_defect_costs_one_connection_and_the_port_stays_open(caplog):
    entered, failures = asyncio.Event(), [ValueError("a defect")]

    def has_room(_host):
        if failures:
            raise failures.pop()
        return True

    async def enter(connection, _host, _port):
        connection.close()
        entered.set()

    async with accepting(has_room, enter) as acceptor:
        lost, first = await asyncio.open_connection("127.0.0.1", acceptor.port)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert await lost.read() == b""
            _, second = await asyncio.open_connection("127.0.0.1", acceptor.port)
            await entered.wait()
        first.close()
        second.close()
    assert "a defect" in caplog.text


async def test_closing_ends_those_that_are_entering():
    began, ended = asyncio.Event(), asyncio.Event()

    async def enter(connection, _host, _port):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            connection.close()
            ended.set()

    async with accepting(lambda _host: True, enter) as acceptor:
        _, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
        async with asyncio.timeout(20):
            await began.wait()
    assert ended.is_set()
    writer.close()
