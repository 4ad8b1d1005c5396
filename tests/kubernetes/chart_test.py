"""The manifests of deploy/ on a real API server."""
import chart


def test_manifests_are_valid_and_the_chart_installs_and_upgrades(cluster, tmp_path, deploy_tools):
    chart.follow(cluster, tmp_path)
