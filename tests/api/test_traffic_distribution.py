import pytest

from api.reading import istio, told, value

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {%s}}
spec: {ports: [{port: 80}], %s}
"""
ANNOTATION = "networking.istio.io/traffic-distribution"
ENTRY = "hosts: [a.b]\nports: [{number: 80, name: http, protocol: HTTP}]\nresolution: DNS"


def prefers_near(annotation="", field=""):
    found = value(SERVICE % (f"{ANNOTATION}: {annotation}" if annotation else "", field)).distribution
    return found is not None and found.always


@pytest.mark.parametrize("field", ["PreferClose", "PreferSameZone"])
def test_reads_the_field_of_a_service(field):
    assert prefers_near(field=f"trafficDistribution: {field}")
    assert not prefers_near()


@pytest.mark.parametrize("annotation", ["PreferClose", "prefersamezone"])
def test_reads_the_annotation_in_any_case(annotation):
    assert prefers_near(annotation)


def test_the_annotation_also_applies_to_a_service_entry():
    text = istio("ServiceEntry", ENTRY).replace(
        "metadata: {", f"metadata: {{annotations: {{{ANNOTATION}: PreferClose}}, "
    )
    assert value(text).distribution is not None


def test_reports_what_is_unknown_or_less_exact_than_written():
    (line,) = told(SERVICE % (f"{ANNOTATION}: PreferCloze", ""))
    assert "warning: `PreferCloze` is not a traffic distribution" in line
    (line,) = told(SERVICE % ("", "trafficDistribution: PreferSameNode"))
    assert "warning: weft does not know on which node a caller runs" in line
    (line,) = told(SERVICE % ("", "trafficDistribution: Near"))
    assert "`trafficDistribution` cannot be `Near`" in line


def test_the_annotation_of_a_namespace_is_reported_as_ignored():
    text = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, annotations: {{{ANNOTATION}: PreferClose}}}}\n"
    (line,) = told(text)
    assert "warning: weft reads" in line and "not of a Namespace" in line
