import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from envoy_dumps import dump
from weft.envoy.dump_secrets import COLUMNS, roots, secrets, table

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def certificate(serial, *, authority=False, identity=""):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), serial, NOW - timedelta(days=1), NOW + timedelta(days=1)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if identity:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
        builder = builder.add_extension(names, critical=True)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def inline(*certificates):
    return {"inline_bytes": base64.b64encode(b"".join(certificates)).decode()}


LEAF = certificate(7, identity="spiffe://cluster.local/ns/shop/sa/default")
ROOT = certificate(255, authority=True)
NEXT = certificate(256, authority=True)


def entry(name, version="1", **secret):
    return {"name": name, "version_info": version, "secret": {"name": name, **secret}}


def rows(*active, warming=(), now=NOW, **options):
    found = dump(SecretsConfigDump={"dynamic_active_secrets": list(active), "dynamic_warming_secrets": list(warming)})
    return table(secrets(found), now=now, **options).rows


def test_a_chain_shows_the_workloads_own_and_a_bundle_all_it_trusts():
    shown = rows(
        entry("default", tls_certificate={"certificate_chain": inline(LEAF, ROOT)}),
        entry("ROOTCA", validation_context={"trusted_ca": inline(ROOT, NEXT)}),
    )
    times = ("2026-05-02T00:00:00Z", "2026-04-30T00:00:00Z")
    assert shown == (
        ("default", "Cert Chain", "ACTIVE", "true", f"{7:032x}", *times, "cluster.local"),
        ("ROOTCA", "CA", "ACTIVE", "true", f"{255:032x}", *times, "-"),
        ("ROOTCA", "CA", "ACTIVE", "true", f"{256:032x}", *times, "-"),
    )
    assert len(shown[0]) == len(COLUMNS)


@pytest.mark.parametrize("days", [-2, 2])
def test_a_certificate_is_valid_only_in_its_time(days):
    chain = entry("default", tls_certificate={"certificate_chain": inline(LEAF)})
    assert rows(chain, now=NOW + timedelta(days=days))[0][3] == "false"


def test_bundles_of_trust_domains_are_listed_with_their_trust_domain():
    domains = [
        {"name": "cluster.local", "trust_bundle": inline(ROOT)},
        {"name": "partner", "trust_bundle": {"inline_string": NEXT.decode()}},
    ]
    validator = {"custom_validator_config": {"typed_config": {"trust_domains": domains}}}
    shown = rows(entry("ROOTCA", validation_context=validator))
    assert [(row[4][-3:], row[-1]) for row in shown] == [("0ff", "cluster.local"), ("100", "partner")]


def test_secrets_that_are_still_warming_are_listed():
    shown = rows(entry("default", "uninitialized"), warming=[entry("ROOTCA")], named=True)
    assert shown == (
        ("secret/ROOTCA", "", "WARMING", "false", "", "", "", "-"),
        ("secret/default", "", "UNINITIALIZED", "false", "", "", "", "-"),
    )


def test_malformed_secrets_are_no_error():
    for odd in (
        {"inline_bytes": "%%"},
        {"inline_string": "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----"},
        7,
    ):
        assert rows(entry("default", tls_certificate={"certificate_chain": odd}))[0][3] == "false"


def test_the_why_column_shows_the_reason_for_each_row():
    section = {"dynamic_active_secrets": [{"name": "default", "secret": {"tls_certificate": {}}}]}
    made = table(section, now=NOW, why=lambda name, at: f"{name}@{at}")
    assert (made.columns[-1], [row[-1] for row in made.rows]) == ("WHY", ["default@"])


def test_roots_are_those_of_the_validation_context():
    one = {"validation_context": {"trusted_ca": inline(ROOT, NEXT)}}
    same = {"validation_context": {"trusted_ca": {"inline_string": NEXT.decode().replace("\n", "\r\n")}}}
    bundle = {"typed_config": {"trust_domains": [{"name": "a", "trust_bundle": inline(ROOT)}]}}
    by_domain = {"validation_context": {"custom_validator_config": bundle}}
    found = [roots({"dynamic_active_secrets": [entry("ROOTCA", **each)]}) for each in (one, same, by_domain)]
    assert [len(each) for each in found] == [2, 1, 1]
    assert found[1] < found[0] and found[2] < found[0] and not found[1] & found[2]
    assert (
        roots({"dynamic_active_secrets": [entry("default", tls_certificate={"certificate_chain": inline(LEAF)})]})
        == set()
    )
