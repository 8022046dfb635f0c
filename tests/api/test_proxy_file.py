from api.reading import istio, told, value

RULE = "host: a.b\ntrafficPolicy: {tls: {mode: SIMPLE, caCertificates: %s}}"


def read(path):
    return value(istio("DestinationRule", RULE % path)).policy.tls.authorities


def test_a_relative_path_is_read_from_the_root_with_a_warning():
    assert read("/certs/ca.pem") == read("certs/ca.pem") == "/certs/ca.pem"
    assert told(istio("DestinationRule", RULE % "/certs/ca.pem")) == []
    (line,) = told(istio("DestinationRule", RULE % "certs/ca.pem"))
    assert "warning: the relative path `certs/ca.pem` is read as /certs/ca.pem" in line


def test_a_directory_is_rejected():
    (line,) = told(istio("DestinationRule", RULE % "/certs/"))
    assert "`/certs/` is not the path of a file" in line
