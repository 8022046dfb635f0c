import pytest

from weft.explain.request import Speaks, Token
from weft.explain.url import BadMethod, BadSource, BadUrl, request_of


def test_a_url_gives_host_port_and_path():
    request = request_of("http://payments.shop:8080/charge?dry=1", method="post", caller="orders-0.shop")
    assert (request.host, request.port, request.path) == ("payments.shop", 8080, "/charge?dry=1")
    assert (request.method, request.caller, request.speaks) == ("POST", "orders-0.shop", Speaks.HTTP)
    assert dict(request.headers) == {"host": "payments.shop:8080"}


def test_without_a_scheme_it_is_http_and_without_a_path_the_root():
    request = request_of("payments")
    assert (request.host, request.port, request.path, request.headers) == ("payments", 80, "/", ())


def test_a_given_host_header_is_kept():
    assert request_of("http://10.0.0.1:8080", headers=[("Host", "shop.example")]).headers == (("Host", "shop.example"),)


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://[fd00::1]:8080/"])
def test_an_address_is_not_looked_up(url):
    request = request_of(url)
    assert request.address == request.host


def test_https_is_the_applications_own_tls():
    request = request_of("https://api.example.com/x")
    assert (request.port, request.speaks, request.server_name) == (443, Speaks.TLS, "api.example.com")
    assert request.offers == ("h2", "http/1.1")


def test_grpc_is_a_call_over_http2():
    request = request_of("grpc://cart/shop.Cart/Add")
    assert (request.method, request.speaks) == ("POST", Speaks.HTTP2)
    assert dict(request.headers)["content-type"] == "application/grpc"


def test_a_token_goes_into_the_authorization_header_unless_it_is_given():
    token = Token("aaa.bbb.ccc")
    assert dict(request_of("payments", tokens=[token]).headers) == {"authorization": "Bearer aaa.bbb.ccc"}
    elsewhere = request_of("payments", tokens=[token], headers=[("Authorization", "Basic x")])
    assert elsewhere.headers == (("Authorization", "Basic x"),)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://files", "the scheme `ftp` is not supported"),
        ("udp://dns:53", "UDP bypasses the proxies: it is sent as without a mesh"),
        ("http://", "the URL names no host"),
        ("tcp://db", "the URL names no port"),
        ("http://db:99999", "port out of range"),
        ("http://db:many", "port could not be cast"),
        ("http://[::1", "invalid ipv6 url"),
        ("http://[nonsense]/", "does not appear to be an ipv4 or ipv6 address"),
        ("http://db:0/", "port 0 cannot be called"),
        ("http://999.1.1.1/", "999.1.1.1 is neither a name nor an address"),
        ("tcp://db:0", "port 0 cannot be called"),
    ],
)
def test_an_invalid_url_gets_examples(url, said):
    with pytest.raises(BadUrl, match=said) as caught:
        request_of(url)
    assert "http://payments.shop:8080/charge" in caught.value.problem.hint


@pytest.mark.parametrize("method", ["GE T", "", "GET\r\n", "GÉT", "GET/"])
def test_a_method_is_one_word(method):
    with pytest.raises(BadMethod, match="is not an HTTP method") as caught:
        request_of("http://payments/", method=method)
    assert "-X POST" in caught.value.problem.hint


def test_a_custom_method_is_accepted():
    assert request_of("http://payments/", method="m-search").method == "M-SEARCH"


def test_the_source_must_be_an_address():
    assert request_of("http://shop.example/", source="2001:db8::7").source == "2001:db8::7"
    with pytest.raises(BadSource, match="`home` is not an IP address"):
        request_of("http://shop.example/", source="home")
