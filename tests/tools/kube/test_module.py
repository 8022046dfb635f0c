"""The module requires what Kubernetes was released with, from places that a proxy has."""

from tools.kube import module

RELEASED = """\
// This is a generated file. Do not edit directly.

module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	github.com/blang/semver/v4 v4.0.0
	k8s.io/api v0.0.0
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397
	sigs.k8s.io/json v0.0.0-20241014173422-cfa47c3a1cc8
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_libraries_of_the_repository_come_from_the_proxy_in_the_release_that_belongs_to_it():
    text = module.kubernetes(RELEASED)
    assert "\tk8s.io/api v0.34.3\n" in text
    assert "\tk8s.io/api => k8s.io/api v0.34.3\n" in text
    assert "./staging" not in text


def test_a_library_with_its_own_releases_keeps_its_version():
    text = module.kubernetes(RELEASED)
    assert "k8s.io/utils v0.0.0-20250604170112-4c0f3b243397\n" in text
    assert "sigs.k8s.io/json v0.0.0-20241014173422-cfa47c3a1cc8\n" in text


def test_the_module_is_ours_with_the_language_of_the_original():
    lines = module.kubernetes(RELEASED).splitlines()
    assert "module weft/kubernetes" in lines
    assert "go 1.24.0" in lines
    assert "godebug default=go1.24" in lines
    assert "require k8s.io/kubernetes v1.34.3" in lines
    assert "\tk8s.io/kubernetes/cmd/kubelet" in lines


def test_programs_are_linked_with_their_release():
    assert "-X k8s.io/component-base/version.gitVersion=v1.34.3" in module.version_flags()
    assert "-X k8s.io/component-base/version.gitMinor=34" in module.version_flags()


def test_coredns_has_each_configured_plugin():
    text = module.coredns_main()
    for plugin in module.DNS_PLUGINS:
        assert f'_ "github.com/coredns/coredns/plugin/{plugin}"' in text
    assert text.index('"cache"') < text.index('"kubernetes"')
