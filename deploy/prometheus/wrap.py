#!/usr/bin/env python3
"""Writes rules.yaml as a PrometheusRule for the Prometheus operator; `--check` says whether it is up to date."""
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
HEAD = """# Written by wrap.py from rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: quire
  labels:
    app.kubernetes.io/name: quire
spec:
"""


def wrapped():
    lines = (FOLDER / "rules.yaml").read_text().splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    return HEAD + "".join(f"  {line}\n" if line else "\n" for line in rules)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    path = FOLDER / "prometheusrule.yaml"
    if not arguments:
        path.write_text(wrapped())
    elif not path.exists() or path.read_text() != wrapped():
        print("prometheusrule.yaml is not what wrap.py writes; run it without arguments", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
