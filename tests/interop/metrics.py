"""What Prometheus' own parser makes of a metrics file.

Usage: metrics.py FILE

Prints a line for each sample: type, name, labels in the order of their names, and value, with tabs between them.
"""

import sys

from prometheus_client.parser import text_string_to_metric_families

with open(sys.argv[1], encoding="utf-8") as file:
    for family in text_string_to_metric_families(file.read()):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = [f"{name}={value}" for name, value in sorted(sample.labels.items())]
            print(family.type, sample.name, *labels, int(sample.value), sep="\t")
