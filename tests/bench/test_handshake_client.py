from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from pathlib import Path

import pytest
from bench.certificates import Root
from bench.process import Failed, Running

from bench import handshake_client


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


@pytest.fixture
def port(root):
    """A server that requires a certificate of the root, and sends one byte."""
    own = root.credentials("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.chain, own.key)
    context.load_verify_locations(own.roots)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            is_tls = accepted.recv(1, socket.MSG_PEEK) == b"\x16"
            with contextlib.suppress(OSError):
                stream = context.wrap_socket(accepted, server_side=True) if is_tls else accepted
                stream.recv(100)
                stream.send(b"x")
                stream.recv(1)
                stream.close()
            accepted.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def client():
    with Running([sys.executable, str(Path(handshake_client.__file__))]) as running:
        yield running


def order(port, credentials, **changes):
    base = {
        "address": "127.0.0.1",
        "port": port,
        "name": "server",
        "tls": True,
        "resumed": False,
        "chain": str(credentials.chain),
        "key": str(credentials.key),
        "alpn": ["h2"],
        "count": 5,
        "parallel": 2,
    }
    return base | changes


def test_makes_a_full_handshake_each_time(port, client, root):
    answer = client.ask(order(port, root.credentials("client")))
    assert (answer["handshakes"], answer["resumed"]) == (5, 0)


def test_resumes_the_first_session_if_configured(port, client, root):
    answer = client.ask(order(port, root.credentials("client"), resumed=True))
    assert (answer["handshakes"], answer["resumed"]) == (5, 5)


def test_connects_without_tls_if_configured(port, client, root):
    answer = client.ask(order(port, root.credentials("client"), tls=False))
    assert (answer["handshakes"], answer["resumed"]) == (5, 0)


def test_fails_where_the_server_refuses_its_certificate(port, client, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # In TLS 1.3 the client finishes before it is rejected: its next write may fail before it reads the alert.
    with pytest.raises(Failed, match=r"alert|reset|EOF|pipe"):
        client.ask(order(port, Root(elsewhere).credentials("client")))
