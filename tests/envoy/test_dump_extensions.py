from envoy_dumps import dump
from weft.envoy.dump_extensions import COLUMNS, extensions, table

ROUTER = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
CORS = {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}


def entry(name, config):
    return {"version_info": "1", "ecds_filter": {"name": name, "typed_config": config}, "client_status": "ACKED"}


def test_each_is_a_row_by_type_and_name():
    found = dump(EcdsConfigDump={"ecds_filters": [entry("b", ROUTER), entry("a", ROUTER), entry("z", CORS)]})
    assert table(extensions(found)).columns == COLUMNS
    kinds = [(name, kind.rpartition(".")[2]) for name, kind in table(extensions(found)).rows]
    assert kinds == [("z", "Cors"), ("a", "Router"), ("b", "Router")]


def test_no_extensions_are_an_empty_table_with_or_without_the_section():
    for found in (dump(EcdsConfigDump={}), dump(ClustersConfigDump={})):
        assert (extensions(found), table(extensions(found)).rows) == ({}, ())


def test_what_is_no_filter_is_no_row_to_fail_on():
    assert table({"ecds_filters": [{}, {"ecds_filter": "x"}]}).rows == (("", ""), ("", ""))
