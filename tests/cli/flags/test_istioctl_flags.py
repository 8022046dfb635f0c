import pytest
from click.testing import CliRunner

from weft.cli.flags.istioctl_flags import instead_of
from weft.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["proxy-status", "--xds-address", "istiod:15012"], "weft finds the control plane itself; to choose another"),
        (["proxy-config", "routes", "web", "--proxy-admin-port=15000"], "leave it out"),
        (["kube-inject", "-f", "x.yaml", "--injectConfigFile", "y"], "--settings FILE"),
        (["validate", "--meshConfigFile", "y"], "the ConfigMap istio-system/istio"),
        (["manifest", "generate", "--charts", "y"], "the manifests are part of weft"),
        (["analyze", "--remote-contexts", "y"], "--context NAME"),
    ],
)
def test_an_option_that_only_istioctl_has_is_an_error_with_a_hint(arguments, hint):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no such option: --")
    assert hint in result.stderr.splitlines()[-1]


def test_an_option_that_istioctl_does_not_have_has_no_hint():
    assert instead_of("--bogus") == instead_of("") == ""
