from weft.cli.reach.cluster import client


def test_a_cluster_is_the_one_of_the_kubeconfig(tmp_path):
    file = tmp_path / "config"
    file.write_text(
        "clusters: [{name: c, cluster: {server: 'https://example.org:6443'}}]\n"
        "contexts: [{name: x, context: {cluster: c}}]\n"
    )
    assert client(file, "x").connection.server == "https://example.org:6443"
