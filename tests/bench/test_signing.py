from __future__ import annotations

from bench.figure import Effort

from bench import signing


def test_measures_certificates_by_kind_of_key_and_tokens():
    said = []
    figures = signing.run(Effort(quick=True), said.append)
    assert [figure.name for figure in figures] == [
        "CA: certificates, P-256",
        "CA: certificates, RSA 2048",
        "CA: tokens checked (ES256)",
    ]
    assert all(figure.value > 0 for figure in figures)
    assert len(said) == 3
