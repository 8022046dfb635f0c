from weft.api.request_test import read_request_test
from weft.files.documents import read_documents

TEST = """\
apiVersion: weft.dev/v1alpha1
kind: RequestTest
metadata: {name: payments, namespace: shop}
spec:
  requests:
  - {from: orders, to: http://payments/charge, expect: allowed}
  - from: web.front
    to: http://payments/charge
    method: post
    headers: {x-user: ann}
    sourceAddress: 198.51.100.7
    jwt: {iss: "https://issuer.example", groups: [a]}
    expect: {verdict: denied, status: 403, odds: 50, workload: payments-v2, subset: v2, path: /x}
"""


def read(text):
    (document,) = read_documents(text.encode(), "tests.yaml").documents
    return read_request_test(document)


def test_cases_are_read_with_their_lines():
    (first, second), problems = read(TEST)
    assert problems == ()
    assert (first.caller, first.namespace, first.to, first.verdict) == (
        "orders",
        "shop",
        "http://payments/charge",
        "allowed",
    )
    assert (first.where.file, first.where.line, second.where.line) == ("tests.yaml", 6, 7)
    assert (second.method, second.headers) == ("POST", (("x-user", "ann"),))
    assert second.claims == '{"iss": "https://issuer.example", "groups": ["a"]}'
    assert (first.source, second.source) == ("", "198.51.100.7")
    assert (second.verdict, second.status, second.odds) == ("denied", 403, 50)
    assert (second.workload, second.subset, second.path) == ("payments-v2", "v2", "/x")
    assert str(second) == "web.front POST http://payments/charge"


def wrong(before, after):
    cases, problems = read(TEST.replace(before, after))
    assert cases == []
    return "\n".join(map(str, problems))


def test_problems_are_reported_with_their_line():
    assert "tests.yaml:6" in (said := wrong("expect: allowed", "expect: alowed"))
    assert "did you mean `allowed`?" in said
    assert "did you mean `headers`?" in wrong("headers:", "header:")
    assert "required" in wrong("from: orders, ", "")
    assert "mapping" in wrong('jwt: {iss: "https://issuer.example", groups: [a]}', "jwt: nonsense")
    assert "is not an IP address" in wrong("198.51.100.7", "198.51.100")
    assert "599" in wrong("status: 403", "status: 700")
    assert "RequestTest is weft.dev/v1alpha1" in wrong("weft.dev/v1alpha1", "weft.dev/v2")
