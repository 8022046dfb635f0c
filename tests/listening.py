"""Wait until a program that was just started accepts connections."""

import asyncio

from eventually import eventually


async def until_listening(host, port, process):
    """Returns when something listens at the address; fails at once if the process has ended."""

    async def connects():
        assert process.returncode is None, "Envoy did not start"
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True

    await eventually(connects, limit=60, retry=ConnectionRefusedError)
