import pytest

from weft.model.gateway import Gateway, GatewayServer, ServerTls, ServerTlsMode
from weft.model.service import Protocol, ServicePort


@pytest.mark.parametrize(
    ("protocol", "tls", "is_http", "encrypted", "redirects"),
    [
        (Protocol.HTTP, None, True, False, False),
        (Protocol.HTTP, ServerTls(https_redirect=True), True, False, True),
        (Protocol.GRPC, None, True, False, False),
        (Protocol.HTTPS, ServerTls(ServerTlsMode.SIMPLE), True, True, False),
        (Protocol.HTTPS, ServerTls(), False, True, False),
        (Protocol.TLS, ServerTls(ServerTlsMode.SIMPLE), False, True, False),
        (Protocol.TCP, None, False, False, False),
    ],
)
def test_protocol_and_tls_mode_decide_http_encryption_and_redirect(protocol, tls, is_http, encrypted, redirects):
    found = GatewayServer(ServicePort(1, "a", protocol), ("*",), tls=tls)
    assert (found.is_http, found.encrypted, found.redirects) == (is_http, encrypted, redirects)


def test_the_key_is_namespace_and_name():
    assert Gateway("a", "b", ()).key == "b/a"
