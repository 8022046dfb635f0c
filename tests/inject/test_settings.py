import pytest

from weft.inject.settings import InjectionSettings, ProxyResources, SettingsError, encode, read, read_config_map


def test_empty_settings_are_the_defaults():
    assert read("{}") == InjectionSettings()
    assert InjectionSettings().resources.limits and InjectionSettings().resources.requests


def test_what_is_written_is_read_again():
    settings = InjectionSettings(
        revision="canary", ip_families=("IPv6", "IPv4"), resources=ProxyResources(limits={"cpu": "1"})
    )
    assert read(encode(settings)) == settings


@pytest.mark.parametrize(
    ("text", "field", "what"),
    [
        ("{", "", "not JSON"),
        ("[]", "", "expected `object`"),
        (b"\xff", "", "not JSON"),
        ('{"imagePullPolcy": "Always"}', "", "unknown field `imagePullPolcy`"),
        ('{"imagePullPolicy": "Sometimes"}', "imagePullPolicy", "Sometimes"),
        ('{"terminationDrainDuration": "5"}', "terminationDrainDuration", "not a duration"),
        ('{"logLevel": "chatty"}', "logLevel", "not a log level of Envoy"),
        ('{"componentLogLevel": "rbac"}', "componentLogLevel", "not COMPONENT:LEVEL"),
        ('{"drainDuration": "x"}', "drainDuration", "not a duration"),
        ('{"resources": {"limits": {"cpu": "lots"}}}', "resources.limits.cpu", "not an amount"),
        ('{"resources": {"limit": {}}}', "resources", "unknown field `limit`"),
        ('{"image": ""}', "image", "empty"),
        ('{"revision": ""}', "revision", "empty"),
        ('{"concurrency": -1}', "concurrency", "below 0"),
        ('{"ipFamilies": []}', "ipFamilies", "one address family"),
        ('{"ipFamilies": ["IPv4", "IPv4"]}', "ipFamilies", "one address family"),
        ('{"control": "istiod"}', "control", "HOST:PORT"),
        ('{"control": "istiod:0"}', "control", "HOST:PORT"),
        ('{"redirection": {"excludeInboundPorts": "http"}}', "redirection.excludeInboundPorts", "not a port"),
        ('{"neverInjectSelector": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}', "neverInject", "Is"),
    ],
)
def test_bad_settings_are_refused_with_their_field(text, field, what):
    with pytest.raises(SettingsError) as error:
        read(text, "ConfigMap istio-system/istio-sidecar-injector")
    problem = error.value.problem
    assert problem.where.object == "ConfigMap istio-system/istio-sidecar-injector"
    assert problem.where.field.startswith(field)
    assert what in problem.what


def test_a_misspelled_setting_gets_a_suggestion():
    with pytest.raises(SettingsError) as error:
        read('{"imagePullPolcy": "Always"}')
    assert error.value.problem.hint == "did you mean `imagePullPolicy`?"


def test_what_an_installation_writes_is_what_is_read():
    import msgspec

    from weft.install.injector import injector_settings
    from weft.install.values import Values

    settings = read(msgspec.json.encode(injector_settings(Values(revision="canary"))))
    assert settings.revision == "canary"
    assert settings.driver == "canary.csi.weft.dev"


def test_the_settings_have_a_key_of_their_own_in_the_config_map():
    data = {"settings": '{"image": "weft:2"}', "values": '{"global": {}}', "config": "policy: enabled"}
    assert read_config_map(data, "ConfigMap").image == "weft:2"


def test_settings_of_an_older_version_are_read_from_its_key():
    assert read_config_map({"values": '{"image": "weft:1"}'}, "ConfigMap").image == "weft:1"
    assert read_config_map({}, "ConfigMap") == InjectionSettings()


def test_values_for_istios_tools_are_not_settings():
    with pytest.raises(SettingsError, match="the key `settings` of the ConfigMap"):
        read_config_map({"values": '{"global": {}}'}, "ConfigMap")
