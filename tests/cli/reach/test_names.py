import click
import pytest

from weft.cli.reach.names import split


@pytest.mark.parametrize(
    ("word", "namespace", "meant"),
    [
        ("payments-v1-0", "", ("", "payments-v1-0", "")),
        ("payments-v1-0", "shop", ("", "payments-v1-0", "shop")),
        ("payments-v1-0.shop", "", ("", "payments-v1-0", "shop")),
        ("payments-v1-0.shop", "shop", ("", "payments-v1-0", "shop")),
        ("deploy/payments", "", ("deployment", "payments", "")),
        ("Deployment/payments.shop", "", ("deployment", "payments", "shop")),
        ("po/payments", "shop", ("pod", "payments", "shop")),
        ("shop/payments", "", ("", "payments", "shop")),
        ("v1.2", "", ("", "v1.2", "")),  # no namespace is called 2, so the dot belongs to the name
        ("deploy/v1.2", "shop", ("deployment", "v1.2", "shop")),
    ],
)
def test_reads_a_name_as_istioctl_and_as_weft_write_it(word, namespace, meant):
    assert split(word, namespace, known={"shop", "bank"}) == meant


@pytest.mark.parametrize(
    ("word", "namespace", "said"),
    [
        ("payments.bank", "shop", "two namespaces are named: bank and shop"),
        ("deplyo/payments", "", "there is no kind `deplyo`"),
    ],
)
def test_an_invalid_name_is_a_usage_error(word, namespace, said, capsys):
    with pytest.raises(click.exceptions.Exit) as refused:
        split(word, namespace, known={"shop", "bank"})
    assert refused.value.exit_code == 2
    assert said in capsys.readouterr().err


def test_on_a_cluster_what_follows_the_last_dot_is_the_namespace():
    assert split("web-0.anything", "") == ("", "web-0", "anything")
