from datetime import timedelta
from ipaddress import ip_address, ip_network

import pytest

from api.reading import document, istio
from api.reading import told as told_of
from fuzz.mutations import VALUES
from weft.api.document import Document
from weft.api.reader import describe, root_of
from weft.api.regex import regex_flaw
from weft.api.report import DocumentReport
from weft.api.syntax import is_header, is_host, is_label_value
from weft.model.names import ObjectKey


def reader(spec):
    report = DocumentReport(document(f"apiVersion: v1\nkind: X\nmetadata: {{name: x}}\nspec:\n{spec}"))
    root = root_of(report)
    root.ignored("apiVersion", "kind", "metadata")
    return report, root.fields("spec")


def told(report):
    return [
        f"{problem.where.line} {problem.what}" + (f" ({problem.hint})" if problem.hint else "")
        for problem in report.finish()
    ]


def test_an_unknown_field_gets_a_guess():
    report, spec = reader("  retires: 1\n  per_try_timeout: 2s\n  zzz: 3\n")
    spec.integer("retries"), spec.duration("perTryTimeout")
    assert told(report) == [
        "5 unknown field `retires` (did you mean `retries`?)",
        "6 unknown field `per_try_timeout` (did you mean `perTryTimeout`? field names are in camelCase)",
        "7 unknown field `zzz` (known here: perTryTimeout, retries)",
    ]


def test_a_field_name_of_another_tool_gets_a_hint_with_wefts_name():
    report, spec = reader("  restartPolicy: Never\n")
    spec.also_called({"restartPolicy": "restart"})
    assert told(report) == ["5 unknown field `restartPolicy` (weft calls it `restart`)"]


def test_all_problems_are_reported_in_the_order_of_lines():
    report, spec = reader("  b: x\n  a: y\n")
    spec.integer("a"), spec.boolean("b")
    assert told(report) == ['5 `b` must be true or false, not "x"', '6 `a` must be a whole number, not "y"']
    assert report.failed


@pytest.mark.parametrize(
    ("written", "getter", "problem"),
    [
        ("a: 70000", lambda f: f.port("a"), "5 `a` must be between 1 and 65535, not 70000"),
        ("a: true", lambda f: f.integer("a"), "5 `a` must be a whole number, not true"),
        ("a: 1.5", lambda f: f.integer("a"), "5 `a` must be a whole number, not the number 1.5"),
        ("a: 5", lambda f: f.duration("a"), "5 `a` has no unit (write 5s or 5ms)"),
        ("a: 5d", lambda f: f.duration("a"), '5 `a` must be a duration, not "5d" (for example 1.5s, 100ms or 1h2m)'),
        ("a: 1.5ms", lambda f: f.duration("a"), "5 `a` must be a whole number of milliseconds, not 1.5ms"),
        ("a: 0s", lambda f: f.duration("a"), "5 `a` must be at least 1ms, not 0s (leave the field out for no limit)"),
        ("a: 999999h", lambda f: f.duration("a"), "5 `a` must be shorter than ten years, not 999999h"),
        ("a: 5", lambda f: f.text("a"), '5 `a` must be text, not the number 5 (put it in quotes: "5")'),
        ("a: true", lambda f: f.text("a"), '5 `a` must be text, not true (put it in quotes: "true")'),
        ("a: xyz", lambda f: f.text("a", most=2), "5 `a` is longer than 2 characters"),
        ('a: "\\0"', lambda f: f.text("a"), "5 `a` contains a character that is not allowed in text"),
        ("a: UPGRAD", lambda f: f.choice("a", ["UPGRADE"]), "5 `a` cannot be `UPGRAD` (did you mean `UPGRADE`?)"),
        ("a: {}", lambda f: f.items("a"), "5 `a` must be a list, not a mapping (begin each item with `- `)"),
        ("a: []", lambda f: f.texts("a", required=True), "5 `a` must not be empty"),
        ("a: [1]", lambda f: f.items("a"), "5 an item of `a` must be a mapping, not the number 1"),
        ("a: x", lambda f: f.fields("a"), '5 `a` must be a mapping, not "x"'),
        ("a: {b: 1}", lambda f: f.string_map("a"), '5 `b` must be text, not the number 1 (put it in quotes: "1")'),
        (
            "a: {b c: d}",
            lambda f: f.labels("a"),
            "5 `b c` is not a label name (use letters, digits, -, _ and . (at most 63))",
        ),
        (
            "a: {b: d/e}",
            lambda f: f.labels("a"),
            "5 `d/e` is not a label value (use letters, digits, -, _ and . (at most 63))",
        ),
        (
            "a: http://x",
            lambda f: f.host("a"),
            "5 `http://x` is not a host name (write only the name, without scheme or path)",
        ),
        ("a: x:80", lambda f: f.host("a"), "5 `x:80` is not a host name (write the name without the port)"),
        ('a: "*.x"', lambda f: f.host("a"), "5 `*.x` is not a host name (a wildcard is not possible here)"),
        ("a: 1.2.3", lambda f: f.address("a"), "5 `1.2.3` is not an IP address"),
        (
            "a: [10.0.0.0/99]",
            lambda f: f.ranges("a"),
            "5 `10.0.0.0/99` is not an IP address or CIDR range (for example 10.0.0.0/8)",
        ),
        ("a: x y", lambda f: f.header("a"), "5 `x y` is not a header name"),
        ("a: {value: 101}", lambda f: f.percent("a"), "5 `value` must be between 0 and 100, not 101"),
        ("a: [0]", lambda f: f.ports("a"), "5 a port is a number between 1 and 65535, not the number 0"),
        ("a: 1", lambda f: f.refused("a", "no a", "never"), "5 no a (never)"),
        ("a: 1", lambda f: f.unsupported("a"), "5 `a` is ignored by this version of weft"),
        ("b: 1", lambda f: (f.text("a", required=True), f.ignored("b")), "4 `a` is required"),
        ("a:", lambda f: f.text("a", required=True), "5 `a` is required"),
        ("{a: 1, b: 2}", lambda f: f.one_of("a", "b"), "5 only one of `a`, `b` may be set"),
    ],
)
def test_wrong_values_are_reported(written, getter, problem):
    report, spec = reader(f"  {written}\n")
    getter(spec)
    assert told(report) == [problem]


def test_valid_values_have_no_problems():
    report, spec = reader(
        "  a: x\n  b: 5\n  c: true\n  d: 1.5s\n  e: [p, q]\n  f: {k: v}\n  g: {value: 12.5}\n  h: a.*\n  i:\n  "
        "j: {n: {x: y}}\n  k: 2.0\n"
    )
    assert spec.text("a") == "x"
    assert spec.integer("b") == 5
    assert spec.boolean("c") is True
    assert spec.duration("d") == timedelta(seconds=1.5)
    assert spec.texts("e") == ("p", "q")
    assert spec.labels("f") == (("k", "v"),)
    assert spec.percent("g") == 12.5
    assert spec.regex("h") == "a.*"
    assert spec.text("i") == ""
    assert [(name, fields.text("x")) for name, fields in spec.entries("j")] == [("n", "y")]
    assert spec.integer("k") == 2
    assert spec.duration("none") is None
    assert told(report) == []


def test_a_warning_does_not_reject_the_object():
    report, spec = reader("  a: 1\n")
    spec.unsupported("a")
    report.finish()
    assert not report.failed


def test_a_list_has_a_bound():
    report, spec = reader("  a: [" + "x," * 5_001 + "]\n")
    assert spec.texts("a") == ()
    assert told(report) == ["5 the field has more than 5000 items"]


def test_values_are_described_briefly():
    assert describe("x" * 50) == '"' + "x" * 40 + '…"'
    assert describe(None) == "nothing"
    assert describe([]) == "a list"


ROUTE = "hosts: [web]\nhttp: [{{{}}}]"
TO = "route: [{destination: {host: web}}]"


@pytest.mark.parametrize(
    ("route", "root"),
    [
        (f"{TO}, retries: {{attempts: many, retryOn: 5xx}}", '`attempts` must be a whole number, not "many"'),
        (f"{TO}, retries: {{atempts: 3, retryOn: 5xx}}", "unknown field `atempts`"),
        (
            "route: [{destination: {host: a}, weight: half}, {destination: {host: b}}]",
            '`weight` must be a whole number, not "half"',
        ),
        (
            "route: [{destination: {host: a}, wieght: 50}, {destination: {host: b}}]",
            "unknown field `wieght`",
        ),
        ("route: [{destination: {hots: web}}]", "unknown field `hots`"),
        ("ruote: [{destination: {host: web}}]", "unknown field `ruote`"),
        (f"{TO}, match: [{{uri: {{prefix: 7}}}}]", "`prefix` must be text, not the number 7"),
        (f"{TO}, fault: {{abort: {{httpStatus: 500, percentge: {{value: 1}}}}}}", "unknown field `percentge`"),
    ],
)
def test_only_the_root_cause_of_a_mistake_is_reported(route, root):
    (said,) = told_of(istio("VirtualService", ROUTE.format(route)))
    assert root in said


def test_consequences_of_a_misspelled_list_of_hosts_are_not_reported():
    (said,) = told_of(
        istio("VirtualService", "hots: [web]\ngateways: [mesh]\nhttp: [{route: [{destination: {host: web}}]}]")
    )
    assert "unknown field `hots` (did you mean `hosts`?)" in said


def test_two_invalid_ports_are_not_also_reported_as_duplicates():
    ports = "ports: [{name: a, number: x, protocol: HTTP}, {name: b, number: y, protocol: HTTP}]"
    said = told_of(istio("ServiceEntry", f"hosts: [a.example.com]\nresolution: DNS\n{ports}"))
    assert len(said) == 2 and all("must be a whole number" in line for line in said)


def test_a_missing_field_is_reported():
    (said,) = told_of(istio("VirtualService", ROUTE.format("route: [{destination: {subset: v1}}]")))
    assert "`host` is required" in said


QUOTED_WRONG = ['"080"', '"8e1"', '"80.0"', '" 80"', '"+80"', '"0x50"', '"٨٠"', '"1_0"', '""', '"eighty"', '"80\\n"']


def test_istios_objects_may_have_whole_numbers_in_quotes():
    for api_version, kind in (("networking.istio.io/v1", "VirtualService"), ("v1", "ConfigMap")):
        spec = quoting(api_version, kind, '{a: "80", b: ["80", 81], c: "-1"}')
        assert (spec.integer("a"), spec.port("a"), spec.ports("b"), spec.integer("c", least=-5)) == (
            80,
            80,
            (80, 81),
            -1,
        )
        assert spec.report.finish() == ()


@pytest.mark.parametrize("written", QUOTED_WRONG)
def test_quoted_text_that_is_no_number_is_rejected(written):
    spec = quoting("networking.istio.io/v1", "VirtualService", f"{{a: {written}, b: [{written}]}}")
    assert (spec.integer("a"), spec.ports("b")) == (None, ())
    assert len(spec.report.finish()) == 2


def test_bounds_hold_for_numbers_in_quotes():
    spec = quoting("networking.istio.io/v1", "VirtualService", '{a: "70000", b: ["0"]}')
    assert (spec.port("a"), spec.ports("b")) == (0, ())


@pytest.mark.parametrize("kind", [("v1", "Service"), ("weft.dev/v1alpha1", "Workload")])
def test_numbers_in_quotes_are_rejected_in_kubernetes_and_weft_objects(kind):
    spec = quoting(*kind, '{a: "80"}')
    assert spec.integer("a") is None


def quoting(api_version, kind, spec):
    text = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"
    root = root_of(DocumentReport(document(text)))
    root.ignored("apiVersion", "kind", "metadata")
    return root.fields("spec")


GETTERS = {
    "text": (lambda fields: fields.text("a"), lambda value: isinstance(value, str)),
    "integer": (lambda fields: fields.integer("a"), lambda value: value is None or 0 <= value < 2**31),
    "number": (lambda fields: fields.number("a", least=0, most=9), lambda value: value is None or 0 <= value <= 9),
    "port": (lambda fields: fields.port("a"), lambda value: 0 <= value <= 65_535),
    "duration": (lambda fields: fields.duration("a"), lambda value: value is None or value > timedelta(0)),
    "boolean": (lambda fields: fields.boolean("a"), lambda value: value in (None, True, False)),
    "host": (lambda fields: fields.host("a"), lambda value: not value or is_host(value)),
    "address": (lambda fields: fields.address("a"), lambda value: not value or ip_address(value)),
    "header": (lambda fields: fields.header("a"), lambda value: not value or is_header(value)),
    "regex": (lambda fields: fields.regex("a"), lambda value: not regex_flaw(value)),
    "ports": (lambda fields: fields.ports("b"), lambda value: all(1 <= each <= 65_535 for each in value)),
    "ranges": (lambda fields: fields.ranges("b"), lambda value: [ip_network(each, strict=False) for each in value]),
    "labels": (lambda fields: fields.labels("c"), lambda value: all(is_label_value(each) for _, each in value)),
}


@pytest.mark.parametrize("name", GETTERS)
def test_a_getter_returns_only_values_that_its_type_can_hold(name):
    getter, holds = GETTERS[name]
    for value in VALUES:
        body = {"a": value, "b": [value, "10.0.0.0/8"], "c": {"x": value}}
        report = DocumentReport(Document(ObjectKey("X", "", "x"), "v1", body))
        result = getter(root_of(report))
        assert holds(result) or not result, (value, result)
