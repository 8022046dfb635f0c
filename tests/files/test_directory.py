import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from weft.base.problem import Problem, Where
from weft.control.intake import Intake
from weft.control.problems import Problems
from weft.files.directory import Directory, Unreadable
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey


def service(name, port=80):
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{ports: "
        f"[{{port: {port}}}]}}\n"
    )


def content(*documents):
    return "---\n".join(documents).encode()


def key(name):
    return ObjectKey("Service", "shop", name)


def changed(changes):
    return {change.key.name: change.document and change.document.body["spec"]["ports"][0]["port"] for change in changes}


def settle(directory):
    return directory.settle(directory.leaving)


BROKEN = "kind: [\n"


def test_new_and_different_objects_are_changes_and_equal_ones_are_not():
    directory = Directory()
    assert changed(directory.apply({"a.yaml": content(service("a"), service("b"))})) == {"a": 80, "b": 80}
    assert changed(directory.apply({"a.yaml": content(service("a"), service("b", 81))})) == {"b": 81}
    assert directory.apply({"a.yaml": content(service("a"), service("b", 81))}) == []


def test_an_object_is_deleted_in_two_steps():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"), service("b"))})
    assert directory.apply({"a.yaml": content(service("a"))}) == []
    assert directory.leaving == {key("b")}
    assert changed(settle(directory)) == {"b": None}
    assert settle(directory) == []
    assert set(directory.live) == {key("a")}


def test_an_object_that_reappears_in_time_is_not_deleted():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"))})
    assert directory.apply({"a.yaml": b""}) == []
    assert directory.apply({"a.yaml": content(service("a"))}) == []
    assert settle(directory) == []


POLICY = "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{name: a, namespace: shop}}\nspec: {{{spec}}}\n"


@pytest.mark.parametrize("kind", ["AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"])
def test_a_policy_that_was_never_readable_denies_everything_until_it_is_fixed(kind):
    directory, mesh, problems = Directory(), Mesh(), Problems()
    intake = Intake(mesh, problems, domain="cluster.local")
    policy = ObjectKey(kind, "shop", "a")

    def load(spec):
        intake.documents(directory.apply({"a.yaml": POLICY.format(kind=kind, spec=spec).encode()}))
        return mesh.get(policy)

    (closed,) = load("selector: {matchLabels: {a: b}}, selector: {}")
    assert closed.selector == ()
    assert getattr(closed, "refused", True) and getattr(closed, "mode", "STRICT") == "STRICT"
    assert directory.problems()
    assert load("[") == (closed,)  # now the file may contain any object
    (mended,) = load("")
    assert mended != closed
    assert load("selector: {}, selector: {}") == (mended,)
    intake.documents(directory.apply({"a.yaml": b""}))
    intake.documents(settle(directory))
    assert mesh.get(policy) == ()


BROKEN_POLICIES = [
    "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata:\n  name: a\n  namespace: shop\nspec: {rules: [\n",
    '{"kind": "AuthorizationPolicy", "metadata": {"namespace": "shop", "name": "a"}, "spec": {"provider": {"name": "b"}, ',
    "kind: AuthorizationPolicy\nmetadata: {namespace: shop, name: 'a'}\nspec:\n\trules: []\n",
]


@pytest.mark.parametrize("text", BROKEN_POLICIES)
def test_a_broken_document_that_looks_like_a_policy_denies_everything_at_the_first_start(text):
    directory, mesh = Directory(), Mesh()
    intake = Intake(mesh, Problems(), domain="cluster.local")
    intake.documents(directory.apply({"a.yaml": content(service("a"), text)}))
    (closed,) = mesh.get(ObjectKey("AuthorizationPolicy", "shop", "a"))
    assert closed.refused
    assert mesh.get(key("a"))
    intake.documents(directory.apply({"a.yaml": content(service("a"))}))
    intake.documents(settle(directory))
    assert mesh.get(ObjectKey("AuthorizationPolicy", "shop", "a")) == ()


def test_a_policy_that_was_good_stays_as_it_was_however_it_is_broken():
    directory = Directory()
    good = POLICY.format(kind="AuthorizationPolicy", spec="")
    directory.apply({"a.yaml": good.encode()})
    before = dict(directory.live)
    assert directory.apply({"a.yaml": good.replace("name: a", "name: ab, [").encode()}) == []
    assert directory.live == before


def test_a_readable_policy_goes_before_an_unreadable_one_of_its_name():
    directory = Directory()
    broken, good = (POLICY.format(kind="AuthorizationPolicy", spec=spec).encode() for spec in ("a: 1, a: 1", ""))
    directory.apply({"a.yaml": broken})
    (change,) = directory.apply({"b.yaml": good})
    assert change.document.usable


def test_a_broken_document_removes_nothing():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"), service("b"), service("c"))})
    assert changed(directory.apply({"a.yaml": content(service("a", 81), BROKEN)})) == {"a": 81}
    assert settle(directory) == []
    assert set(directory.live) == {key("a"), key("b"), key("c")}
    directory.apply({"a.yaml": content(service("a", 81))})
    assert changed(settle(directory)) == {"b": None, "c": None}


@pytest.mark.parametrize("between", [b"", None, content(service("a"))], ids=["emptied", "away", "half"])
@pytest.mark.parametrize("then", [content(service("a"), BROKEN), Unreadable(Problem(Where(), "locked"))])
def test_what_a_file_held_until_just_now_stays_if_it_comes_back_broken(between, then):
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"), service("b"))})
    assert directory.apply({"a.yaml": between}) == []
    assert directory.apply({"a.yaml": then}) == []
    assert settle(directory) == []
    assert set(directory.live) == {key("a"), key("b")}
    assert directory.apply({"a.yaml": content(service("a"))}) == []
    assert changed(settle(directory)) == {"b": None}


def test_a_broken_object_with_a_name_keeps_only_its_own_last_good_state():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"), service("b"))})
    directory.apply({"a.yaml": content(service("a") + "spec: {}\n")})
    assert changed(settle(directory)) == {"b": None}
    assert directory.live[key("a")].body["spec"] == {"ports": [{"port": 80}]}


def test_garbage_keeps_everything_and_a_deleted_file_does_not():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"))})
    directory.apply({"a.yaml": b"\xff\xfe\xff"})
    assert settle(directory) == []
    directory.apply({"a.yaml": None})
    assert changed(settle(directory)) == {"a": None}


def test_an_unreadable_file_keeps_what_it_held():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"))})
    problem = Problem(Where(file="a.yaml", line=1), "no")
    directory.apply({"a.yaml": Unreadable(problem)})
    assert settle(directory) == []
    assert directory.problems() == (problem,)


def test_moving_an_object_is_no_delete_whatever_comes_first():
    directory = Directory()
    directory.apply({"b.yaml": content(service("a"))})
    assert changed(directory.apply({"b.yaml": None, "a.yaml": content(service("a"))})) == {"a": 80}
    assert settle(directory) == []
    directory.apply({"a.yaml": None})
    assert changed(directory.apply({"c.yaml": content(service("a"))})) == {"a": 80}
    assert settle(directory) == []


def test_the_first_of_two_files_by_path_wins_and_the_other_takes_over_when_it_is_removed():
    directory = Directory()
    directory.apply({"b.yaml": content(service("a", 2))})
    assert changed(directory.apply({"a.yaml": content(service("a", 1)), "c.yaml": content(service("a", 3))})) == {
        "a": 1
    }
    assert [str(problem) for problem in directory.problems()] == [
        f"{name}.yaml:1: Service shop/a: error: Service shop/a is also defined at a.yaml:1; that definition is used "
        "(hint: to replace that definition by this one, remove it from a.yaml)"
        for name in "bc"
    ]
    assert changed(directory.apply({"a.yaml": None})) == {"a": 2}
    assert settle(directory) == []


def test_a_readable_object_goes_before_one_that_is_only_kept():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a", 1))})
    assert changed(directory.apply({"a.yaml": BROKEN.encode(), "b.yaml": content(service("a", 2))})) == {"a": 2}
    assert len(directory.problems()) == 1


REFUSED = service("x", "eighty")


def test_an_invalid_object_does_not_replace_a_valid_copy():
    directory = Directory()
    assert changed(directory.apply({"a.yaml": REFUSED.encode(), "b.yaml": service("x", 81).encode()})) == {"x": 81}
    said = [str(problem) for problem in directory.problems()]
    assert said == [
        'a.yaml:4: Service shop/x: spec.ports[0].port: error: `port` must be a whole number, not "eighty"',
        "a.yaml:1: Service shop/x: error: Service shop/x is also defined at b.yaml:1; that definition is used "
        "(hint: to replace that definition by this one, remove it from b.yaml)",
    ]
    assert changed(directory.apply({"a.yaml": service("x", 80).encode()})) == {"x": 80}


def test_a_later_valid_copy_replaces_a_rejected_one():
    directory = Directory()
    directory.apply({"a.yaml": REFUSED.encode()})
    assert changed(directory.apply({"b.yaml": service("x", 81).encode()})) == {"x": 81}


class Taken:
    """A directory whose changes are applied, as in a control plane."""

    def __init__(self, domain="cluster.local"):
        self.mesh, self.problems = Mesh(), Problems()
        self.intake = Intake(self.mesh, self.problems, domain=domain)
        self.directory = Directory(reader=self.intake)
        self.live = self.directory.live

    def apply(self, contents):
        changes = self.directory.apply(contents)
        self.intake.documents(changes)
        return changes


def test_the_last_good_state_stays_in_force_despite_a_duplicate():
    directory = Taken()
    directory.apply({"a.yaml": service("x", 80).encode()})
    directory.apply({"b.yaml": service("x", 81).encode()})
    assert changed(directory.apply({"a.yaml": REFUSED.encode()})) == {"x": "eighty"}  # rejected, so 80 stays
    assert directory.apply({"b.yaml": service("x", 82).encode()}) == []
    assert changed(directory.apply({"a.yaml": None})) == {"x": 82}


def test_a_copy_that_is_in_force_and_becomes_bad_stays_too():
    directory = Taken()
    directory.apply({"a.yaml": REFUSED.encode(), "b.yaml": service("x", 81).encode()})
    assert changed(directory.apply({"b.yaml": REFUSED.encode()})) == {"x": "eighty"}
    assert directory.live[key("x")].file == "b.yaml"


def test_an_object_edited_badly_before_its_copy_came_stays_as_it_was():
    directory = Taken()
    directory.apply({"a.yaml": service("x", 80).encode()})
    directory.apply({"a.yaml": REFUSED.encode()})
    assert directory.apply({"b.yaml": service("x", 81).encode()}) == []


VIRTUAL_SERVICE = (
    "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: x, namespace: shop}}\n"
    "spec: {{hosts: [{hosts}], http: [{{route: [{{destination: {{host: a}}}}]}}]}}\n"
)


def test_a_copy_that_only_the_meshs_domain_rejects_replaces_nothing():
    directory = Taken(domain="mesh.example")
    twice = VIRTUAL_SERVICE.format(hosts="a, a.shop.svc.mesh.example")
    once = VIRTUAL_SERVICE.format(hosts="a")
    directory.apply({"1.yaml": twice.encode(), "2.yaml": once.encode()})
    (route,) = directory.mesh.get(ObjectKey("VirtualService", "shop", "x"))
    assert route.hosts == ("a.shop.svc.mesh.example",)


def test_a_version_in_several_files_is_read_once_however_often_its_problems_are_listed():
    directory = Taken()
    documents = []
    read = directory.intake.read
    directory.intake.read = lambda document: documents.append(document) or read(document)
    directory.apply({"a.yaml": REFUSED.encode(), "b.yaml": service("x", 81).encode()})
    documents.clear()
    for _ in range(3):
        assert len(directory.directory.problems()) == 2
    assert documents == []


def test_files_are_shown_under_the_name_the_user_knows():
    directory = Directory("/abs/mesh", "mesh")
    directory.apply({"sub/a.yaml": content(service("a"))})
    found = directory.live[key("a")]
    assert (found.file, found.directory) == ("mesh/sub/a.yaml", "/abs/mesh/sub")


NAMES = st.sampled_from("abc")
PATHS = st.sampled_from(["1.yaml", "2.yaml", "sub/3.yaml"])
PARTS = st.lists(st.tuples(st.sampled_from(["good", "broken", "named"]), NAMES, st.integers(1, 3)), max_size=3)


class Reference(RuleBasedStateMachine):
    """A simple model of the rules: for each file its objects and the kept ones, for each object the first file. An
    object that is in no file and not settled yet still belongs to the file that contained it last."""

    def __init__(self):
        super().__init__()
        self.directory = Directory()
        self.said, self.kept, self.live, self.held_by = {}, {}, {}, {}

    @rule(files=st.dictionaries(PATHS, PARTS | st.none(), min_size=1), settle=st.booleans())
    def save(self, files, settle):
        left = {each.name: self.live[each.name] for each in self.directory.leaving}
        self.directory_changes(self.directory.apply({path: self.write(parts) for path, parts in files.items()}))
        for path, parts in files.items():
            last = {name: port for name, port in left.items() if self.held_by[name] == path}
            before = {**last, **self.kept.pop(path, {}), **self.said.pop(path, {})}
            if parts is None:
                continue
            good = {}
            for sort, name, port in parts:
                if sort == "good":
                    good.setdefault(name, port)
            named = {name for sort, name, _ in parts if sort == "named"}
            anything = any(sort == "broken" for sort, _, _ in parts)
            self.said[path] = good
            self.kept[path] = {
                name: port for name, port in before.items() if name not in good and (anything or name in named)
            }
        for source in (self.kept, self.said):
            for path in sorted(source, reverse=True):
                self.held_by.update(dict.fromkeys(source[path], path))
        if settle:
            self.directory_changes(self.directory.settle(self.directory.leaving))

    def write(self, parts):
        if parts is None:
            return None
        texts = {
            "good": lambda n, p: service(n, p),
            "broken": lambda n, p: BROKEN,
            "named": lambda n, p: service(n, p) + "spec: {}\n",
        }
        return content(*(texts[sort](name, port) for sort, name, port in parts))

    def directory_changes(self, changes):
        for name, port in changed(changes).items():
            assert self.live.get(name) != port or port is not None, "a change must change something"
            if port is None:
                del self.live[name]
            else:
                self.live[name] = port

    @invariant()
    def the_live_set_is_the_references(self):
        expected = {}
        for source in (self.said, self.kept):
            for path in sorted(source):
                for name, port in source[path].items():
                    expected.setdefault(name, port)
        leaving = {key.name for key in self.directory.leaving}
        assert {name: port for name, port in self.live.items() if name not in leaving} == expected
        assert leaving == set(self.live) - set(expected)
        assert {key.name for key in self.directory.live} == set(self.live)


TestReference = Reference.TestCase
TestReference.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)


def test_json_without_apiversion_is_reported_if_the_file_held_an_object_or_is_given_by_name():
    watched, given = Directory("/mesh"), Directory()
    assert watched.apply({"a.json": b"{}"}) == [] and watched.problems() == ()
    watched.apply({"a.json": b'{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}'})
    watched.apply({"a.json": b"{}"})
    assert "`apiVersion` is missing" in str(watched.problems()[0])
    given.apply({"a.json": b"{}"})
    assert "`apiVersion` is missing" in str(given.problems()[0])


def test_objects_whose_newest_version_cannot_be_read_are_named():
    directory = Directory()
    directory.apply({"a.yaml": content(service("a"), service("b"))})
    assert directory.kept == frozenset()
    directory.apply({"a.yaml": content(service("b"), BROKEN)})
    assert directory.kept == {key("a")}
    directory.apply({"b.yaml": content(service("a", 81))})  # another file has a readable version
    assert directory.kept == frozenset()
    directory.apply({"a.yaml": content(service("b")), "b.yaml": None})
    assert directory.kept == frozenset()
