"""Wait for a condition: one polling loop for all tests.

`eventually` is for coroutines, `eventually_blocking` for plain tests. Both call a check until its value holds, and
return that value. If none holds within the limit, an AssertionError shows the check and the last value or error.

An exception that the check raises ends the wait, a failed assertion too: an assertion in a check must hold at every
call. `retry` lists the exceptions that only mean "not yet".
"""

import asyncio
import inspect
import time

LIMIT = 30.0  # seconds; enough for a busy machine with two cores to start an Envoy
EVERY = 0.01  # seconds between two calls of the check
_LAST_LOOK = 5.0  # seconds that an awaited call has at least, so that the one at the limit can end


async def eventually(check, holds=bool, *, limit=LIMIT, every=EVERY, retry=(), what=""):
    """Return the first value of `check()` for which `holds(value)`; the check may return an awaitable."""
    __tracebackhide__ = True
    wait = _Wait(check, limit, what)
    while wait.goes_on():
        try:
            value = check()
            if inspect.isawaitable(value):
                value = await wait.bounded(value)
            if holds(value):
                return value
            wait.saw(value)
        except retry as error:
            wait.failed(error)
        await asyncio.sleep(every)
    raise wait.failure() from wait.error


def eventually_blocking(check, holds=bool, *, limit=LIMIT, every=EVERY, retry=(), what=""):
    """Like `eventually`, in a test that is not a coroutine."""
    __tracebackhide__ = True
    wait = _Wait(check, limit, what)
    while wait.goes_on():
        try:
            if holds(value := check()):
                return value
            wait.saw(value)
        except retry as error:
            wait.failed(error)
        time.sleep(every)
    raise wait.failure() from wait.error


class _Wait:
    """The clock of one wait, and the value or error of its last call."""

    def __init__(self, check, limit, what):
        self._check, self._limit, self._what = check, limit, what
        self._deadline = time.monotonic() + limit
        self._last_look = False
        self._last = "no look has ended"
        self.error = None

    def goes_on(self):
        """Whether to call the check again: until a call has started after the deadline, so a stalled machine gets
        one more."""
        if self._last_look:
            return False
        self._last_look = time.monotonic() >= self._deadline
        return True

    async def bounded(self, awaitable):
        seconds = max(self._deadline - time.monotonic(), _LAST_LOOK)
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await awaitable
        except TimeoutError as error:
            if not clock.expired():
                raise
            self._last = f"the last look has not ended after {seconds:.0f} s; before that, {self._last}"
            raise self.failure() from error

    def saw(self, value):
        self._last, self.error = f"last value: {value!r}", None

    def failed(self, error):
        self._last, self.error = f"last error: {type(error).__name__}: {error}", error

    def failure(self):
        return AssertionError(f"not within {self._limit:g} s: {self._what or _source(self._check)} ({self._last})")


def _source(check):
    """The text of a lambda, the name of anything else."""
    name = getattr(check, "__qualname__", repr(check))
    if not name.endswith("<lambda>"):
        return name
    try:
        return " ".join(inspect.getsource(check).split())
    except (OSError, TypeError):
        return name
