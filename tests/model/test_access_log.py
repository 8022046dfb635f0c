from weft.model.access_log import Encoding, FileLog


def test_a_log_is_text_on_the_proxys_own_stream_unless_it_is_told_otherwise():
    assert (FileLog().path, FileLog().encoding) == ("/dev/stdout", Encoding.TEXT)
