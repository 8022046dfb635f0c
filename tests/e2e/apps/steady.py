"""Load at a steady rate independent of responses (an open loop), and connections that are held from beginning to
end. Every failure is recorded with its start, end and error. Nothing is retried."""

import asyncio
import time
from collections import Counter

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

PAUSE = 0.1  # seconds between two messages on a held connection
SILENCE = 10.0  # seconds without a response that count as a failure


class Steady:
    def __init__(self, streams, held):
        self.sent, self.answered, self.failures, self.steps = Counter(), Counter(), [], {}
        self.messages, self.dropped = Counter(), {}
        self.asking, self.stopped = set(), asyncio.Event()
        self.tasks = [asyncio.create_task(self.stream(**each)) for each in streams]
        self.tasks += [asyncio.create_task(self.hold(kind, target)) for kind, target in held.items()]

    async def stream(self, name, url, host, rate, keep_alive):
        connector = TCPConnector(limit=0, force_close=not keep_alive)
        async with ClientSession(timeout=ClientTimeout(total=SILENCE), connector=connector) as session:
            begun, number = time.monotonic(), 0
            while not self.stopped.is_set():
                number += 1
                task = asyncio.create_task(self.ask(session, name, url, host))
                self.asking.add(task)
                task.add_done_callback(self.asking.discard)
                await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            await asyncio.gather(*self.asking)

    async def ask(self, session, name, url, host):
        """Uses POST, so that no client on the way repeats the request."""
        self.sent[name] += 1
        begun = time.time()
        try:
            async with session.post(url, headers={"host": host}, data=b"x") as response:
                text = await response.text()
                if response.status == 200:
                    self.answered[name] += 1
                    self.steps[name] = response.headers.get("x-step", "")
                else:
                    self.failures.append([begun, time.time(), name, f"{response.status} {text[:300]}"])
        except (ClientError, TimeoutError, OSError) as error:
            self.failures.append([begun, time.time(), name, f"{type(error).__name__}: {error}"])

    async def hold(self, kind, target):
        begun = time.time()
        try:
            async for _ in {"tcp": echoes, "grpc": turns, "websocket": frames}[kind](target):
                self.messages[kind] += 1
                if self.stopped.is_set():
                    return
                begun = time.time()
                await asyncio.sleep(PAUSE)
        except Exception as error:
            self.dropped[kind] = [begun, f"{type(error).__name__}: {error}"]

    def seen(self):
        return {
            "sent": dict(self.sent),
            "answered": dict(self.answered),
            "failures": self.failures,
            "steps": self.steps,
            "messages": dict(self.messages),
            "dropped": self.dropped,
        }


async def echoes(target):
    reader, writer = await asyncio.open_connection(*target)
    while True:
        writer.write(b"still here\n")
        async with asyncio.timeout(SILENCE):
            assert await reader.readline() == b"still here\n"
        yield


async def turns(target):
    import grpc

    async with grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.stream_stream("/e2e.Echo/Both")()
        while True:
            async with asyncio.timeout(SILENCE):
                await call.write(b"still here")
                assert await call.read() == b"again still here"
            yield


async def frames(target):
    url, host = target
    async with ClientSession() as session, session.ws_connect(url, headers={"host": host}) as connection:
        while True:
            await connection.send_str("still here")
            assert (await connection.receive_str(timeout=SILENCE)).endswith("still here")
            yield


running = []


async def steady_start(streams, held):
    running.append(Steady(streams, held))


async def steady_seen():
    return running[-1].seen()


async def steady_stop():
    """Start no new request, and wait for those in flight."""
    load = running.pop()
    load.stopped.set()
    await asyncio.gather(*load.tasks)
    return load.seen()


COMMANDS = {"steady_start": steady_start, "steady_seen": steady_seen, "steady_stop": steady_stop}
