import json

import msgspec
import pytest

from weft.cli.look.proxy_config.provenance import Provenance, provenance, words

RULE = {"name": "no-limits", "says": "Never.", "page": "resources.md"}
ANSWERS = [
    {
        "name": "outbound|80||a",
        "parts": [
            {"path": "", "at": "", "sources": ["Service shop/a (a.yaml:1)"], "rules": []},
            {
                "path": "endpoints[0].lb_endpoints[10.0.0.1:80]",
                "at": "endpoints[0].lb_endpoints[3]",
                "sources": ["Workload shop/a (a.yaml:9)", "Service shop/a (a.yaml:1)"],
                "rules": [RULE],
            },
        ],
    }
]


def test_a_part_is_one_line_with_objects_before_rules():
    assert words({"sources": [], "rules": [RULE]}) == "default: no-limits"
    assert words({"sources": ["A", "B"], "rules": [RULE]}) == "A; B [no-limits]"
    assert words({"sources": ["A"], "rules": []}) == "A"


def test_a_part_is_found_by_path_or_address_else_the_whole_resource_is_used():
    made = Provenance(ANSWERS)
    pod = "Workload shop/a (a.yaml:9); Service shop/a (a.yaml:1) [no-limits]"
    assert made.words("outbound|80||a", "endpoints[0].lb_endpoints[3]") == pod
    assert made.words("outbound|80||a", "10.0.0.1:80") == pod
    assert made.words("outbound|80||a", "10.0.0.2:80") == "Service shop/a (a.yaml:1)"
    assert made.words("xds-grpc") == "default: bootstrap"


def test_whole_resources_have_their_parts_beside_them():
    cluster, own = Provenance(ANSWERS).beside([{"name": "outbound|80||a", "type": "EDS"}, {"name": "xds-grpc"}])
    assert cluster == {"name": "outbound|80||a", "type": "EDS", "why": ANSWERS[0]["parts"]}
    assert own["why"][0]["rules"][0]["name"] == "bootstrap"


def test_the_control_plane_is_queried_for_each_kind():
    class Source:
        file, proxy, called = None, "web-0.shop", None

        @property
        def reach(self):
            return self

        def ask(self, page, query):
            asked.append((page, msgspec.json.decode(query["question"])))
            return json.dumps(ANSWERS).encode()

    asked = []
    assert provenance(Source(), "cluster", "endpoints").parts("outbound|80||a")
    assert asked == [("why", {"proxy": "web-0.shop", "kind": kind}) for kind in ("cluster", "endpoints")]
    Source.called = ("cart",)
    provenance(Source(), "route")
    assert asked[-1] == ("why", {"proxy": "web-0.shop", "kind": "route", "called": ["cart"]})


@pytest.mark.root
def test_each_row_of_a_running_proxy_has_its_provenance(weft, mesh):
    for command in ("listeners", "routes", "clusters", "endpoints", "secret"):
        done = weft("pc", command, "talker", "--why", "--mesh", mesh)
        assert done.returncode == 0, done.stderr
        head, *lines = done.stdout.splitlines()
        assert head.endswith("WHY")
        start = head.index("WHY")
        assert lines and all(line[start:] for line in lines)


@pytest.mark.root
def test_all_tables_of_a_running_proxy_have_provenance(weft, mesh):
    done = weft("pc", "all", "talker", "--why", "--mesh", mesh)
    assert done.returncode == 0, done.stderr
    tables = [part.splitlines() for part in done.stdout.split("\n\n")[1:]]
    assert len(tables) == 5
    for head, *lines in tables:
        start = head.index("WHY")
        assert all(line[start:] for line in lines), head
    done = weft("pc", "all", "talker", "--why", "-o", "json", "--mesh", mesh)
    assert (done.returncode, done.stdout) == (2, "") and "one kind at a time" in done.stderr
