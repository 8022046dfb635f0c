from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from weft.base.metrics_page import MetricsPage


def test_each_metric_has_help_and_type_and_the_value_of_the_scrape():
    pods = []
    refused = CounterMetricFamily("weft_refused_total", "Requests that were refused.", labels=("reason",))
    refused.add_metric(('a "quoted"\nreason',), 2)
    page = MetricsPage(lambda: [GaugeMetricFamily("weft_pods", "Pods.", len(pods))], lambda: [refused])
    pods.append("a")
    assert page.text() == (
        "# HELP weft_pods Pods.\n# TYPE weft_pods gauge\nweft_pods 1.0\n"
        "# HELP weft_refused_total Requests that were refused.\n# TYPE weft_refused_total counter\n"
        'weft_refused_total{reason="a \\"quoted\\"\\nreason"} 2.0\n'
    )
    parsed = {family.name: family.samples[0].value for family in text_string_to_metric_families(page.text())}
    assert parsed == {"weft_pods": 1.0, "weft_refused": 2.0}


def test_two_pages_of_one_process_share_nothing():
    first = MetricsPage(lambda: [GaugeMetricFamily("weft_pods", "Pods.", 1)])
    second = MetricsPage(lambda: [GaugeMetricFamily("weft_pods", "Pods.", 2)])
    assert "weft_pods 1.0" in first.text() and "weft_pods 2.0" in second.text()
    assert MetricsPage().text() == ""
