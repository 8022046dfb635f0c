from weft.model.access_log import FileLog, LogProvider
from weft.model.settings import Settings


def test_the_provider_envoy_exists_by_default():
    assert Settings().logs_of("envoy") == (FileLog(),)
    assert Settings().logs == ()


def test_an_unknown_or_unsupported_provider_has_no_logs():
    settings = Settings(log_providers=(LogProvider("elsewhere"),))
    assert settings.logs_of("elsewhere") == settings.logs_of("nobody") == ()
