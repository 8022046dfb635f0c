import socket
import threading

import pytest

from weft.local.exchange import Exchange, NoAnswer


@pytest.fixture
def answering(tmp_path):
    """A server that answers the next request with given bytes. Yields a function that sets them and the recorded
    requests."""
    path, asked, threads = str(tmp_path / "socket"), [], []
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()

    def answer(said):
        def serve():
            taken, _ = listening.accept()
            with taken:
                asked.append(taken.recv(65536))
                taken.sendall(said)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return path, asked

    yield answer
    for thread in threads:
        thread.join()
    listening.close()


def test_a_request_is_sent_and_its_response_read_up_to_its_content_length(answering):
    path, asked = answering(b"HTTP/1.0 200 OK\r\nServer: x\r\nCONTENT-LENGTH: 5\r\n\r\nhello and more")
    with Exchange(path, 10.0) as exchange:
        assert exchange.ask("POST", "/a?b=c", b"body") == 200
        assert exchange.read() == b"hello"
    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [b"POST /a?b=c HTTP/1.0", b"Host: localhost", b"Content-Length: 4"]
    assert body == b"body"


def test_a_response_without_a_length_ends_with_its_connection(answering):
    path, _ = answering(b"HTTP/1.1 404 Not Found\r\n\r\none\ntwo")
    with Exchange(path, 10.0) as exchange:
        assert exchange.ask("GET", "/") == 404
        assert [exchange.readline(), exchange.readline(), exchange.readline()] == [b"one\n", b"two", b""]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "the response is incomplete"),
        (b"HTTP/1.0 200 OK\r\nServer", "the response is incomplete"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the response is not HTTP"),
        (b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 101, "the response has too many headers"),
        (b"x" * 65_536, "too long"),
    ],
)
def test_an_invalid_response_is_an_error(answering, said, why):
    path, _ = answering(said)
    with Exchange(path, 10.0) as exchange, pytest.raises(NoAnswer, match=why):
        exchange.ask("GET", "/")


def test_a_truncated_response_is_an_error(answering):
    path, _ = answering(b"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhello")
    with Exchange(path, 10.0) as exchange:
        exchange.ask("GET", "/")
        with pytest.raises(NoAnswer, match="after 5 of 10 bytes"):
            exchange.read()


def test_a_silent_server_times_out(tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        with Exchange(str(tmp_path / "socket"), 0.01) as exchange, pytest.raises(TimeoutError):
            exchange.ask("GET", "/")


def test_a_missing_socket_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Exchange(str(tmp_path / "socket"), 10.0)
