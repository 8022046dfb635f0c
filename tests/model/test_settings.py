from weft.model.access_log import FileLog, LogProvider
from weft.model.settings import Settings


def test_the_provider_envoy_is_there_without_being_written():
    assert Settings().logs_of("envoy") == (FileLog(),)
    assert Settings().logs == ()


def test_a_provider_that_is_unknown_or_cannot_be_written_to_writes_nothing():
    settings = Settings(log_providers=(LogProvider("elsewhere"),))
    assert settings.logs_of("elsewhere") == settings.logs_of("nobody") == ()
