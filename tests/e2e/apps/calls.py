"""Commands that a test can send to a pod: requests in bulk, load, raw connections, name lookups. Each returns JSON."""

import asyncio
import hashlib
import json
import os
import socket
import ssl
import sys
import time
from collections import Counter

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, WSMsgType

CHUNK = bytes(range(256)) * 256


async def http(url, count=1, parallel=8, method="GET", headers=None, body=None, timeout=20, keep_alive=True):
    """Send the same request `count` times; returns every response, in no particular order."""
    answers, left = [], iter(range(count))

    async def worker(session):
        for _ in left:
            answers.append(await _ask(session, method, url, headers, body))

    async with _session(timeout=timeout, keep_alive=keep_alive, limit=parallel) as session:
        await asyncio.gather(*(worker(session) for _ in range(min(count, parallel))))
    return answers


async def _ask(session, method, url, headers=None, body=None):
    begun = time.monotonic()
    try:
        async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
            text = await response.text()
            try:
                content = json.loads(text)
            except ValueError:
                content = text
            return {
                "status": response.status,
                "headers": {name.lower(): value for name, value in response.headers.items()},
                "body": content,
                "seconds": time.monotonic() - begun,
            }
    except (ClientError, TimeoutError, OSError) as error:
        return {
            "status": 0,
            "headers": {},
            "body": f"{type(error).__name__}: {error}",
            "seconds": time.monotonic() - begun,
        }


def _session(*, timeout=20, keep_alive=True, limit=100):
    return ClientSession(
        timeout=ClientTimeout(total=timeout), connector=TCPConnector(limit=limit, force_close=not keep_alive)
    )


class Load:
    """Sends requests without a pause until it is stopped."""

    def __init__(self, url, parallel, pause, headers, method):
        self.url, self.pause, self.headers, self.method = url, pause, headers, method
        self.statuses, self.versions, self.pods, self.failures = Counter(), Counter(), Counter(), []
        self.stopped = False
        self.tasks = [asyncio.create_task(self.work()) for _ in range(parallel)]

    async def work(self):
        async with _session(timeout=10) as session:
            while not self.stopped:
                answer = await _ask(session, self.method, self.url, self.headers)
                self.statuses[str(answer["status"])] += 1
                if isinstance(answer["body"], dict):
                    self.versions[answer["body"].get("version", "")] += 1
                    self.pods[answer["body"].get("pod", "")] += 1
                if answer["status"] != 200 and len(self.failures) < 20:
                    self.failures.append(answer)
                await asyncio.sleep(self.pause)

    def seen(self):
        return {
            "statuses": dict(self.statuses),
            "versions": dict(self.versions),
            "pods": dict(self.pods),
            "failures": self.failures,
        }


loads = {}


async def load_start(name, url, parallel=4, pause=0.005, headers=None, method="GET"):
    loads[name] = Load(url, parallel, pause, headers, method)


async def load_seen(name):
    return loads[name].seen()


async def load_stop(name):
    load = loads.pop(name)
    load.stopped = True
    await asyncio.gather(*load.tasks)
    return load.seen()


async def upload(url, size):
    async def body():
        for start in range(0, size, len(CHUNK)):
            yield CHUNK[: size - start]

    async with _session(timeout=60) as session, session.post(url, data=body()) as response:
        return {"status": response.status, "body": await response.json()}


async def download(url):
    digest, size = hashlib.sha256(), 0
    async with _session(timeout=60) as session, session.get(url) as response:
        async for chunk in response.content.iter_any():
            digest.update(chunk)
            size += len(chunk)
        return {"status": response.status, "size": size, "sha256": digest.hexdigest()}


async def websocket(url, messages):
    replies = []
    async with _session() as session, session.ws_connect(url) as connection:
        for message in messages:
            await connection.send_str(message)
            replies.append((await connection.receive(timeout=10)).data)
        await connection.send_bytes(b"abc")
        binary = await connection.receive(timeout=10)
        replies.append(binary.data.decode() if binary.type is WSMsgType.BINARY else str(binary))
    return replies


async def paced(url, method, clients, each, pause, apart=0.0):
    """Clients that keep their connections and send requests at the same moments, or `apart` seconds apart; returns
    the number of responses by status, and the errors."""
    statuses, reasons = Counter(), Counter()

    async def ask(begin):
        await asyncio.sleep(begin)
        async with _session(timeout=20) as session:
            for _ in range(each):
                answer = await _ask(session, method, url)
                statuses[str(answer["status"])] += 1
                if answer["status"] != 200:
                    reasons[str(answer["body"])[:200]] += 1
                await asyncio.sleep(pause)

    await asyncio.gather(*(ask(number * apart) for number in range(clients)))
    return {"statuses": dict(statuses), "reasons": dict(reasons)}


async def tcp(host, port, send="", half_close=False, wait_first=False, read=None, timeout=20):
    """Make one connection: optionally wait for the server's first bytes, send, optionally half-close, read to the
    end of file or `read` bytes. The result contains the error of a reset connection."""
    result = {"first": "", "received": "", "error": ""}
    begun = time.monotonic()
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
            result["peer"] = writer.get_extra_info("peername")[0]
            if wait_first:
                result["first"] = (await reader.read(65536)).decode(errors="replace")
                result["first_after"] = time.monotonic() - begun
            if send:
                writer.write(send.encode())
                await writer.drain()
            if half_close:
                writer.write_eof()
            result["received"] = (await (reader.read() if read is None else reader.readexactly(read))).decode(
                errors="replace"
            )
            writer.close()
    except (OSError, EOFError, TimeoutError) as error:
        result["error"] = f"{type(error).__name__}: {error}"
    return result


async def raw(host, port, send, then="", until="", timeout=20):
    """Send bytes as they are (latin-1), then `then` after the server's first bytes; returns all received bytes, up
    to the end of the connection or until they contain `until`."""
    result = {"received": "", "error": ""}
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(send.encode("latin1"))
            if then:
                result["received"] = (await reader.read(65536)).decode("latin1")
                writer.write(then.encode("latin1"))
            while data := await reader.read(65536):
                result["received"] += data.decode("latin1")
                if until and until in result["received"]:
                    break
            writer.close()
    except (OSError, TimeoutError) as error:
        result["error"] = f"{type(error).__name__}: {error}"
    return result


async def slow_download(url, pause, pieces):
    """Download with a pause between reads; returns the status and the size."""
    size = 0
    async with _session(timeout=60) as session, session.get(url) as response:
        for _ in range(pieces):
            size += len(await response.content.read(4096))
            await asyncio.sleep(pause)
        async for chunk in response.content.iter_any():
            size += len(chunk)
        return {"status": response.status, "size": size}


stalled = []  # unread responses with their sessions


async def stall(url, count):
    """Request responses and do not read them, each on its own connection."""
    for _ in range(count):
        session = _session(timeout=120)
        stalled.append((session, await session.get(url)))


async def go_on():
    """Read the stalled responses to their end; returns their sizes."""
    sizes = []
    for session, response in stalled:
        sizes.append(len(await response.read()))
        await session.close()
    stalled.clear()
    return sizes


async def grpc_status(target, method, count=1, metadata=None, details=False):
    """Count the status codes of calls of one method; with `details`, codes other than OK have gRPC's message."""
    import grpc

    found = Counter()
    async with grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        for _ in range(count):
            try:
                await channel.unary_unary(f"/e2e.Echo/{method}")(b"", timeout=20, metadata=metadata)
                found["OK"] += 1
            except grpc.aio.AioRpcError as error:
                found[f"{error.code().name}: {error.details()}" if details else error.code().name] += 1
    return dict(found)


async def names(host, port, count=1, server_name=""):
    """Connect to a `namer`, in plaintext or over TLS with a server name; returns which pods responded."""
    answers, question = Counter(), _hello(server_name) if server_name else b"who is there?"
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(question)
        try:
            answers[(await asyncio.wait_for(reader.read(), 20)).decode()] += 1
        except ConnectionError:
            answers[""] += 1
        writer.close()
    return dict(answers)


def _hello(server_name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    begun = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=server_name)
    try:
        begun.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()


async def datagram(host, port, send):
    """Send a datagram and return the response. Datagrams may be lost, so it is sent until a response arrives."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        await loop.sock_connect(sender, (socket.gethostbyname(host), port))
        for _ in range(10):
            await loop.sock_sendall(sender, send.encode())
            try:
                return (await asyncio.wait_for(loop.sock_recv(sender, 65536), 1)).decode()
            except (TimeoutError, ConnectionRefusedError):
                continue
    raise TimeoutError("nothing came back")


async def tcp_after_their_close(host, port, size):
    """Read to the server's end of file, and only then send; the server counts what still arrives."""
    reader, writer = await asyncio.open_connection(host, port)
    received = await reader.read()
    writer.write(b"x" * size)
    await writer.drain()
    writer.write_eof()
    writer.close()
    await writer.wait_closed()
    return received.decode()


async def many(host, port, count):
    """Open all connections at once; then each one sends its number and expects it back."""

    async def connect(number):
        async with gate:
            return number, *(await asyncio.open_connection(host, port))

    async def talk(number, reader, writer):
        word = f"{number:08d}".encode()
        writer.write(word)
        await writer.drain()
        return await reader.readexactly(8) == word

    gate = asyncio.Semaphore(64)  # SYNs at once; the connections stay
    async with asyncio.timeout(60):
        connections = await asyncio.gather(*(connect(number) for number in range(count)))
        right = await asyncio.gather(*(talk(*connection) for connection in connections))
        again = await asyncio.gather(*(talk(*connection) for connection in connections))
    for _, _, writer in connections:
        writer.close()
    return {"open": len(connections), "right": sum(right), "again": sum(again)}


kept = {}  # connections that stay open, by name


async def keep(name, host, port):
    """Open a connection and leave it open."""
    kept[name] = await asyncio.wait_for(asyncio.open_connection(host, port), 20)


async def say(name, send, until):
    """Send on a connection that was left open; returns everything up to `until`."""
    reader, writer = kept[name]
    writer.write(send.encode())
    return (await asyncio.wait_for(reader.readuntil(until.encode()), 20)).decode()


async def grpc_calls(target):
    """Call each kind of gRPC method once."""
    import grpc

    async with grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        path = "/e2e.Echo/"
        unary = await channel.unary_unary(path + "Unary")(b"hello", timeout=20)
        stream = [message async for message in channel.unary_stream(path + "ServerStream")(b"100", timeout=20)]
        total = await channel.stream_unary(path + "ClientStream")(_numbers(100), timeout=20)
        both = channel.stream_stream(path + "Both")(timeout=20)
        turns = []
        for number in range(5):  # each response precedes the next request: no proxy waits for the end
            await both.write(b"%d" % number)
            turns.append((await both.read()).decode())
        await both.done_writing()  # the server's remaining messages still arrive
        turns += [(await both.read()).decode(), (await both.code()).name]
        try:
            await channel.unary_unary(path + "Fail")(b"", timeout=20)
            failure = "none"
        except grpc.aio.AioRpcError as error:
            failure = f"{error.code().name}: {error.details()}"
    return {
        "unary": unary.decode(),
        "server_stream": [int(message) for message in stream],
        "client_stream": int(total),
        "both": turns,
        "failure": failure,
    }


async def _numbers(count):
    for number in range(count):
        yield b"%d" % number


async def grpc_unary(target, count):
    """Make calls on one channel; returns which pods responded."""
    import grpc

    async with grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary("/e2e.Echo/Unary")
        return dict(Counter([(await call(b"hello", timeout=20)).decode() for _ in range(count)]))


async def resolve(name):
    """Resolve a name with the C library, by family; includes the resolver's error, if any."""
    found = {}
    for family, key in ((socket.AF_INET, "v4"), (socket.AF_INET6, "v6")):
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(name, 80, family=family, type=socket.SOCK_STREAM)
            found[key] = sorted({answer[4][0] for answer in answers})
        except socket.gaierror as error:
            found[key] = []
            found["error"] = error.strerror
    return found


async def run(argv, timeout=20):
    """Run a program in this pod, as this user."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), timeout)
    return {"status": process.returncode, "stdout": out.decode(), "stderr": errors.decode()}


async def who():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))
        address = probe.getsockname()[0]
    return {"uid": os.getuid(), "gid": os.getgid(), "pid": os.getpid(), "address": address}


async def speak(lines):
    """Print many lines, for tests of the pod's log."""
    for _ in range(lines):
        sys.stdout.write("x" * 100 + "\n")
    sys.stdout.flush()


async def leave(status=1):
    """End this program, as a crash would."""
    os._exit(status)


COMMANDS = {
    "http": http,
    "load_start": load_start,
    "load_seen": load_seen,
    "load_stop": load_stop,
    "upload": upload,
    "download": download,
    "websocket": websocket,
    "paced": paced,
    "names": names,
    "raw": raw,
    "slow_download": slow_download,
    "stall": stall,
    "go_on": go_on,
    "grpc_status": grpc_status,
    "tcp": tcp,
    "datagram": datagram,
    "tcp_after_their_close": tcp_after_their_close,
    "many": many,
    "keep": keep,
    "say": say,
    "grpc_calls": grpc_calls,
    "grpc_unary": grpc_unary,
    "resolve": resolve,
    "run": run,
    "who": who,
    "speak": speak,
    "leave": leave,
}
