from weft.model.access_log import FileLog
from weft.model.settings import Settings


def test_a_log_goes_to_the_proxys_own_stream_unless_it_is_told_otherwise():
    assert FileLog().path == "/dev/stdout"


def test_the_provider_envoy_is_there_without_being_written():
    assert Settings().logs_of("envoy") == (FileLog(),)
    assert Settings().logs == ()
