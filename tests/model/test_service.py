from weft.model.service import Protocol


def test_every_protocol_is_http_or_bytes_or_neither():
    neither = {protocol for protocol in Protocol if not protocol.is_http and not protocol.is_tcp}
    assert neither == {Protocol.UDP, Protocol.UNDECLARED}
    assert not any(protocol.is_http and protocol.is_tcp for protocol in Protocol)
    assert {protocol for protocol in Protocol if protocol.is_http2} <= {
        protocol for protocol in Protocol if protocol.is_http
    }
