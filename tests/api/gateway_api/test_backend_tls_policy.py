import pytest

from api.gateway_api.objects import standard
from api.reading import read, told

TARGET = '{group: "", kind: Service, name: web}'


def policy(validation, targets=TARGET):
    return standard("BackendTLSPolicy", f"targetRefs: [{targets}]\nvalidation: {validation}")


def test_every_target_gets_the_server_name():
    refs = 'caCertificateRefs: [{group: "", kind: ConfigMap, name: roots}]'
    names = "subjectAltNames: [{type: Hostname, hostname: c.d}, {type: URI, uri: 'spiffe://e'}]"
    targets = '{group: "", kind: Service, name: web, sectionName: https}, {group: "", kind: Service, name: api}'
    found = read(policy(f"{{hostname: a.b, {refs}, {names}}}", targets)).values
    assert [(each.service, each.section, each.host) for each in found] == [
        ("web", "https", "web.shop.svc.cluster.local"),
        ("api", "", "api.shop.svc.cluster.local"),
    ]
    assert (found[0].server_name, found[0].bundles, found[0].system) == ("a.b", ("roots",), False)
    assert found[0].subject_alt_names == ("c.d", "spiffe://e")


@pytest.mark.parametrize(
    ("validation", "problem"),
    [
        ("{hostname: a.b}", "`caCertificateRefs` or `wellKnownCACertificates` is required"),
        (
            '{hostname: a.b, wellKnownCACertificates: System, caCertificateRefs: [{group: "", kind: ConfigMap, name: s}]}',
            "`caCertificateRefs` cannot be combined with `wellKnownCACertificates` (keep either `caCertificateRefs` or `wellKnownCACertificates`)",
        ),
        (
            "{hostname: a.b, wellKnownCACertificates: System, subjectAltNames: [{type: URI, hostname: c.d}]}",
            "`type: URI` needs `uri`",
        ),
    ],
)
def test_exactly_one_source_of_ca_certificates_is_required(validation, problem):
    assert told(policy(validation)) == [f"6 {problem}"]


def test_references_to_other_kinds_are_kept_for_the_status():
    text = '{hostname: a.b, caCertificateRefs: [{group: "", kind: Secret, name: s}]}'
    (found,) = read(policy(text)).values
    assert not told(policy(text))
    assert (found.bundles, found.other_kinds) == ((), ("Secret",))


def test_only_services_can_be_targets():
    (line,) = told(policy("{hostname: a.b, wellKnownCACertificates: System}", "{group: a.b, kind: Pool, name: web}"))
    assert line.startswith("5 weft does not support a Pool as the target of a BackendTLSPolicy")


def test_a_target_of_another_kind_is_left_out_of_the_meant_values():
    targets = "{group: a.b, kind: Pool, name: web, sectionName: x}"
    assert read(policy("{hostname: a.b, wellKnownCACertificates: System}", targets)).meant == ()
