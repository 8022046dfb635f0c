import json

import pytest

from weft.cli.look.bug_report.archive import without_secrets
from weft.cli.look.bug_report.redact import is_secret, redacted

HIDDEN = "dXNlcjpw-s3cr3t"


@pytest.mark.parametrize(
    "document",
    [
        {"headers": [{"header": {"key": "authorization", "value": f"Basic {HIDDEN}"}, "append_action": "X"}]},
        {"request_headers_to_add": [{"header": {"key": "x-api-key", "raw_value": HIDDEN}}]},
        {"header": {"key": "Set-Cookie", "value": f"id={HIDDEN}; Path=/"}},
        {"header": {"key": "x-auth", "value": HIDDEN}},
        {"name": "cookie", "string_match": {"exact": HIDDEN}},
        {"name": "x-token", "string_match": {"safe_regex": {"regex": f"^{HIDDEN}$"}}},
        {"name": "x-token", "exact_match": HIDDEN},
        {"http": [{"headers": {"request": {"set": {"authorization": f"Basic {HIDDEN}"}}}}]},
        {"match": [{"headers": {"x-api-key": {"exact": HIDDEN}}}]},
        {"env": [{"name": "DB_PASSWORD", "value": HIDDEN}]},
        {"env": {"CLIENT_SECRET": HIDDEN, "AWS_SECRET_ACCESS_KEY": HIDDEN}},
        {"annotations": {"example.com/api-token": HIDDEN, "example.com/apikey": HIDDEN}},
        {"annotations": {"example.com/client": json.dumps({"password": HIDDEN})}},
        {"private_key": {"inline_string": HIDDEN}},
        {"tokens": [HIDDEN, HIDDEN]},
        {"path_redirect": f"/login?next=x&code={HIDDEN}"},
        {"when": [{"key": "request.headers[x-api-key]", "values": ["v2", HIDDEN]}]},
        {"when": [{"key": "request.headers[Authorization]", "notValues": [HIDDEN]}]},
        {"jwksUri": f"https://someone:{HIDDEN}@keys.example/jwks"},
        {"env": [{"name": "DATABASE_URL", "value": f"postgres://shop:{HIDDEN}@db:5432/orders"}]},
        {"data": {"mesh": f"defaultConfig:\n  tracing:\n    lightstep:\n      accessToken: {HIDDEN}\n"}},
        {"data": {"mesh": f"providers:\n- headers:\n  - name: x-api-key\n    value: {HIDDEN}\n"}},
        {"data": {"mesh": f"all: &all\n  accessToken: {HIDDEN}\n"}},
        {"lastError": f"refused: password={HIDDEN} is wrong"},
    ],
    ids=lambda document: str(document)[:40],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_values_of_fields_with_secret_names_are_redacted(document, indent):
    said = json.dumps({"configs": [document]}, indent=indent).encode()
    left = without_secrets(said)
    assert HIDDEN.encode() not in left and b"[redacted]" in left
    assert json.loads(left) == redacted({"configs": [document]})


def test_the_rest_of_a_document_stays_as_it_is():
    document = {
        "tls_certificate_sds_secret_configs": [{"name": "default", "sds_config": {"api_config_source": {}}}],
        "token_bucket": {"max_tokens": 10, "tokens_per_fill": 5},
        "credentialName": "shop-certificate",
        "private_key": {"filename": "/etc/key.pem"},
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "safe_regex": {"regex": "/a/?b"},
        "header": {"key": "x-version", "value": "v2"},
        "@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump",
    }
    assert redacted(document) == document
    said = json.dumps(document, indent=4).encode()
    assert without_secrets(said) == said


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (f'[2026-01-02] "GET /reset?code={HIDDEN}&x HTTP/1.1" 200 -', '[2026-01-02] "GET /reset?[redacted] HTTP/1.1" 200 -'),
        (f"see http://a.example/?q={HIDDEN} now", "see http://a.example/?[redacted] now"),
        ('{"path":"/a?code=1","status":200}', '{"path":"/a?[redacted]","status":200}'),
        (f"'x-api-key', '{HIDDEN}'", "'x-api-key', '[redacted]'"),
        (f"'x-auth', '{HIDDEN}'", "'x-auth', '[redacted]'"),
        (f"> X-Api-Key: {HIDDEN}", "> X-Api-Key: [redacted]"),
        (f"cookie: id={HIDDEN}; other={HIDDEN}", "cookie: [redacted]"),
        (f"Authorization: Basic {HIDDEN}", "Authorization: Basic [redacted]"),
        (f"error: password={HIDDEN}, try again", "error: password=[redacted], try again"),
        (f"cannot call http://me:{HIDDEN}@b.example:80/x", "cannot call http://[redacted]@b.example:80/x"),
        (f"db=postgres://me:p@{HIDDEN}@b.example/x@y", "db=postgres://[redacted]@b.example/x@y"),
        ("cluster.a.token_bucket: 0", "cluster.a.token_bucket: 0"),
        ("a.yaml:3: AuthorizationPolicy shop/a: spec.rules: none", "a.yaml:3: AuthorizationPolicy shop/a: spec.rules: none"),
        ("spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/web"),
        ("what is wrong? nothing", "what is wrong? nothing"),
    ],
)  # fmt: skip
def test_lines_of_a_log_lose_queries_and_headers(line, left):
    assert without_secrets(f"first\n{line}\nlast\n".encode()).decode() == f"first\n{left}\nlast\n"


def test_settings_that_refer_to_themselves_take_no_time():
    """With the aliases expanded, the document would be larger than any memory."""
    lines = ["l0: &l0 {token: x}", *(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))]
    assert "[redacted]" in redacted({"data": {"mesh": "\n".join(lines)}})["data"]["mesh"]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (f"a: b\n---\npassword: >\n  {HIDDEN}\n  {HIDDEN}\n", "a: b\n---\npassword: '[redacted]'\n"),
        (f"call: http://a/b && true\npassword: |\n  {HIDDEN}\n", "call: http://a/b && true\npassword: '[redacted]'\n"),
        ("password: 1234\nport: 80\n", "password: '[redacted]'\nport: '80'\n"),
        ("a: b\ntoken: !!int x\n---\n", "a: b\ntoken: '[redacted]'\n--- ''\n"),
    ],
)
def test_settings_lose_what_is_secret_however_they_are_written(settings, left):
    assert redacted({"data": {"settings": settings}}) == {"data": {"settings": left}}


@pytest.mark.parametrize(
    "value", ["!!int ''", "!!float ''", "!!bool maybe", "!!timestamp soon", "!!binary x", "!!python/none x"]
)
def test_settings_with_values_that_are_none_stay_as_they_are(value):
    settings = f"a: {value}\nb: c\n"
    assert redacted({"data": settings}) == {"data": settings}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["\n", "key", "-", "- ", "/", "a.b-", "a://", "?", "'key", "eyJ", "authorization: "])
def test_long_lines_in_a_log_are_redacted_quickly(part):
    """Each of these lines once took minutes. A caller can choose the content of an access log."""
    text = part * (240_000 // len(part)) + "\n"
    assert redacted({"said": text})["said"]
    assert without_secrets(text.encode())


def test_what_is_too_deep_is_not_shown():
    deep = HIDDEN
    for _ in range(400):
        deep = [deep]
    assert HIDDEN not in str(redacted(deep))


@pytest.mark.parametrize("name", ["key", "name", "keepalive", "sds_secret_config", "metadata_key", "secretName"])
def test_names_of_settings_are_no_secrets(name):
    assert not is_secret(name)
