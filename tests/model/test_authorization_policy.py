import pytest

from weft.model.authorization_policy import AuthorizationRule, Condition, Operation, Source


@pytest.mark.parametrize(
    "rule",
    [
        AuthorizationRule(sources=(Source(namespaces=("a",)), Source(not_request_principals=("*",)))),
        AuthorizationRule(operations=(Operation(ports=(80,), not_hosts=("a",)),)),
        AuthorizationRule(operations=(Operation(methods=("GET",)),)),
        AuthorizationRule(operations=(Operation(not_paths=("/",)),)),
        AuthorizationRule(conditions=(Condition("request.headers", ("a",), ("b",)),)),
        AuthorizationRule(conditions=(Condition("request.auth.audiences", (), ("b",)),)),
    ],
)
def test_a_rule_on_hosts_methods_paths_headers_or_tokens_needs_http(rule):
    assert rule.needs_http


@pytest.mark.parametrize(
    "rule",
    [
        AuthorizationRule(),
        AuthorizationRule(sources=(Source(principals=("a",), ip_blocks=("::/0",), remote_ip_blocks=("::/0",)),)),
        AuthorizationRule(operations=(Operation(ports=(80,), not_ports=(81,)),)),
        AuthorizationRule(conditions=(Condition("connection.sni", (), ("a",)), Condition("source.ip", (), ("::1",)))),
    ],
)
def test_a_rule_on_callers_and_ports_does_not_need_http(rule):
    assert not rule.needs_http
