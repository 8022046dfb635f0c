from weft.ca import messages

# IstioCertificateRequest{csr: "CSR", validity_duration: 3600, metadata: {"a": "b"}} as Istio's own code writes it.
WIRE = bytes.fromhex("0a0343535218901c220a0a080a016112031a0162")


def test_requests_are_read_as_istio_writes_them():
    request = messages.CertificateRequest.FromString(WIRE)
    assert request.csr == "CSR"
    assert request.validity_duration == 3600
    assert dict(request.metadata) == {"a": "b"}
    assert request.SerializeToString(deterministic=True) == WIRE


def test_a_response_is_a_list_of_texts_in_field_one():
    response = messages.CertificateResponse(cert_chain=["leaf", "root"])
    assert response.SerializeToString() == b"\x0a\x04leaf\x0a\x04root"


def test_the_services_are_called_by_istios_names():
    assert messages.CertificateRequest.DESCRIPTOR.full_name == "istio.v1.auth.IstioCertificateRequest"
    assert messages.CERTIFICATE_SERVICE == "istio.v1.auth.IstioCertificateService"
    assert messages.TrustBundle(trust_domain="x", roots=["y"]).SerializeToString() == b"\x0a\x01x\x12\x01y"
