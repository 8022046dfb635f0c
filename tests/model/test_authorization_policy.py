import pytest

from weft.model.authorization_policy import Condition, Operation, Rule, Source


@pytest.mark.parametrize(
    "rule",
    [
        Rule(sources=(Source(namespaces=("a",)), Source(not_request_principals=("*",)))),
        Rule(operations=(Operation(ports=(80,), not_hosts=("a",)),)),
        Rule(operations=(Operation(methods=("GET",)),)),
        Rule(operations=(Operation(not_paths=("/",)),)),
        Rule(conditions=(Condition("request.headers", ("a",), ("b",)),)),
        Rule(conditions=(Condition("request.auth.audiences", (), ("b",)),)),
    ],
)
def test_a_rule_on_hosts_methods_paths_headers_or_tokens_needs_http(rule):
    assert rule.needs_http


@pytest.mark.parametrize(
    "rule",
    [
        Rule(),
        Rule(sources=(Source(principals=("a",), ip_blocks=("::/0",), remote_ip_blocks=("::/0",)),)),
        Rule(operations=(Operation(ports=(80,), not_ports=(81,)),)),
        Rule(conditions=(Condition("connection.sni", (), ("a",)), Condition("source.ip", (), ("::1",)))),
    ],
)
def test_a_rule_on_callers_and_ports_does_not(rule):
    assert not rule.needs_http
