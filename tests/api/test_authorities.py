import pytest

from ca.making import ca, p256
from weft.api.authorities import authorities
from weft.ca.certificates import certificate_pem

ROOT = certificate_pem(ca("a root", p256()))


def test_returns_the_certificates_in_ca_crt():
    assert authorities({"data": {"ca.crt": ROOT + ROOT, "other": "x"}}) == ROOT + ROOT


@pytest.mark.parametrize(
    "body", [{}, {"data": None}, {"data": {"other": ROOT}}, {"data": {"ca.crt": 1}}, {"data": {"ca.crt": "no PEM"}}]
)
def test_a_value_that_is_no_certificate_gives_nothing(body):
    assert authorities(body) == ""
