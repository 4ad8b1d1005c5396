import cluster as clusters
import pytest


@pytest.fixture
def cluster(tmp_path):
    """A real API server with etcd."""
    try:
        made = clusters.Cluster(tmp_path)
    except clusters.Missing as missing:
        pytest.skip(str(missing))
    yield made
    made.close()
