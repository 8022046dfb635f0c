from weft.model.service import Protocol


def test_no_protocol_is_both_http_and_tcp():
    neither = {protocol for protocol in Protocol if not protocol.is_http and not protocol.is_tcp}
    assert neither == {Protocol.UDP, Protocol.UNDECLARED}
    assert not any(protocol.is_http and protocol.is_tcp for protocol in Protocol)
    assert {protocol for protocol in Protocol if protocol.is_http2} <= {
        protocol for protocol in Protocol if protocol.is_http
    }
