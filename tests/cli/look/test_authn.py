def test_it_lists_its_commands(weft):
    done = weft("authn", "--help")
    assert done.returncode == 0
    assert "tls-check" in done.stdout
