from weft.xds.table import Rejected, ResourceTable, parts_of


class Named:
    def __init__(self, name, version):
        self.name, self.version, self.body = name, version, b""


def test_changed_since_returns_the_latest_changes_first():
    table = ResourceTable()
    for revision, name in enumerate("abc", start=1):
        table.put(name, Named(name, "1"), revision)
    table.put("a", Named("a", "2"), 4)
    assert list(table.changed_since(1)) == ["a", "c", "b"]
    assert table.changed_at("a") == 4


def test_a_rejected_version_is_replaced_by_the_accepted_one():
    table = ResourceTable()
    table.put("a", Named("a", "1"), 1)
    table.accept(Named("a", "1"))
    table.put("a", Named("a", "2"), 2)
    assert table.reject("a", Rejected("2", "no"), 3)
    assert table.live["a"].version == "1"
    assert not table.put("a", Named("a", "2"), 4)


def test_most_bodies_have_one_part():
    assert parts_of(Named("a", "1")) == ()
