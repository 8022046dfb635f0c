"""The program in every pod of these tests: the servers listed in SERVE, and a Unix socket on which a test sends
commands: one line of JSON, one line back. The socket bypasses the network, so control is never intercepted.

SERVE is a list such as `http=8080 echo=9000 greeting=3306`; CONTROL is the directory of the sockets.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import calls
import connect_server
import http_server
import raw_server
import steady
import tcp_server

NAME = os.environ["POD_NAME"]
MOST = 1 << 26  # bytes of one line


async def main():
    commands = {
        **calls.COMMANDS,
        **http_server.COMMANDS,
        **tcp_server.COMMANDS,
        **steady.COMMANDS,
        **raw_server.COMMANDS,
        **connect_server.COMMANDS,
    }
    for item in os.environ.get("SERVE", "").split():
        kind, port = item.split("=")
        if kind == "grpc":
            import grpc_server

            await grpc_server.serve(int(port))
            commands |= grpc_server.COMMANDS
        elif kind == "http":
            await http_server.serve(int(port))
        elif kind == "connect":
            await connect_server.serve(int(port))
        elif kind == "raw":
            await raw_server.serve(int(port))
        else:
            await tcp_server.serve(kind, int(port))
    if os.environ.get("SOCKET"):
        await http_server.serve(path=os.environ["SOCKET"])
    path = Path(os.environ["CONTROL"]) / f"{NAME}.sock"
    path.unlink(missing_ok=True)
    await asyncio.start_unix_server(lambda reader, writer: answer(commands, reader, writer), path, limit=MOST)
    sys.stdout.write(f"{NAME} serves {os.environ.get('SERVE', 'nothing')}\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await http_server.drain()


async def answer(commands, reader, writer):
    try:
        wanted = json.loads(await reader.readline())
        result = {"result": await commands[wanted["call"]](**wanted["arguments"])}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    writer.write(json.dumps(result).encode() + b"\n")
    await writer.drain()
    writer.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
