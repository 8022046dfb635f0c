"""Customers: sends requests to frontend at a constant rate and prints one line every few seconds.

The rate does not drop when the shop is slow. If too many requests are in flight, new ones are counted as skipped.
"""

import asyncio
import os
import signal
import time
from collections import Counter

from aiohttp import ClientError, ClientSession, ClientTimeout

URL = os.environ.get("URL", "http://frontend/")
RATE = float(os.environ.get("RATE", "20"))  # requests per second
AT_ONCE = 50
REPORT_EVERY = 5.0  # seconds


class Window:
    def __init__(self):
        self.milliseconds = []
        self.versions = Counter()
        self.failures = Counter()
        self.skipped = 0

    def line(self, seconds):
        done, failed = len(self.milliseconds), sum(self.failures.values())
        times = sorted(self.milliseconds) or [0.0]
        success = f"{100 * (done - failed) / done:.1f} % ok" if done else "none answered"
        parts = [f"{done / seconds:.1f} requests/s", success]
        parts.append(f"p50 {times[len(times) // 2]:.1f} ms, p99 {times[int(len(times) * 0.99)]:.1f} ms")
        if taken := sum(self.versions.values()):
            parts.append(
                "payments " + " ".join(f"{name} {100 * n / taken:.0f} %" for name, n in sorted(self.versions.items()))
            )
        parts += [f"{count}× {reason}" for reason, count in self.failures.most_common(3)]
        if self.skipped:
            parts.append(f"{self.skipped} not sent, too many were open")
        return ", ".join(parts)


async def one(session, window):
    begun = time.monotonic()
    try:
        async with session.get(URL) as response:
            body = await response.json(content_type=None) if response.status in (200, 502) else {}
            if response.status != 200:
                errors = [f"{name}: {part['error']}" for name, part in body.items() if "error" in part]
                window.failures["; ".join(errors) or f"status {response.status}"] += 1
            if version := body.get("payments", {}).get("version"):
                window.versions[version] += 1
    except (ClientError, TimeoutError, ValueError, AttributeError, TypeError) as error:
        window.failures[str(error) or type(error).__name__] += 1
    window.milliseconds.append(1000 * (time.monotonic() - begun))


async def until_open(session, ended):
    """Wait until the whole shop responds, so that no requests are sent while it starts."""
    while not ended.is_set():
        trial = Window()
        await one(session, trial)
        if not trial.failures:
            return
        print(f"the shop is not open yet: {next(iter(trial.failures))}", flush=True)
        await asyncio.sleep(0.5)


async def main():
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with ClientSession(timeout=ClientTimeout(total=5)) as session:
        await until_open(session, ended)
        running, window, since = set(), Window(), time.monotonic()
        next_at = since
        while not ended.is_set():
            if len(running) < AT_ONCE:
                task = asyncio.create_task(one(session, window))
                running.add(task)
                task.add_done_callback(running.discard)
            else:
                window.skipped += 1
            now = time.monotonic()
            if now - since >= REPORT_EVERY:
                print(window.line(now - since), flush=True)
                window, since = Window(), now
            next_at = max(next_at + 1 / RATE, now - 1)  # after a pause of the machine, catch up on one second at most
            await asyncio.sleep(max(0, next_at - now))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
