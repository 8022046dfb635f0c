from weft.model.access_log import Encoding, FileLog


def test_a_log_is_text_on_stdout_by_default():
    assert (FileLog().path, FileLog().encoding) == ("/dev/stdout", Encoding.TEXT)
