#!/usr/bin/env python3
"""The shipped dashboard and alerts are well-formed, and ask for metrics that some source file exports. The status page
reads fields that the status has, and shows each figure through what makes a dash of one that is absent.

Usage: check_assets.py SOURCE_FOLDER
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

METRIC = re.compile(r"\bheddle_[a-z_]+\b")
# Exported by Prometheus itself for a histogram.
SUFFIXES = ("_bucket", "_sum", "_count")
FOLDERS = ("base", "metrics", "comm", "engine", "checkpoint", "planner", "elastic", "cli")


def exported(root):
    """Every metric name in a string of the sources."""
    names = set()
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.cc"):
            names.update(re.findall(r'"(heddle_[a-z_]+)"', path.read_text(encoding="utf-8")))
    return names


def page_problems(root):
    page = (root / "metrics/dashboard/status.html").read_text(encoding="utf-8")
    document = (root / "docs/reference/status.md").read_text(encoding="utf-8")
    fields = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in document.splitlines()
                                                 if line.startswith("| `"))))
    read = set(re.findall(r"\b(?:status|worker)\.(\w+)", page)) - {"name"}
    if len(read) < 15:
        yield f"status.html: this check is blind: {sorted(read)}"
    for field in sorted(read - fields):
        yield f"status.html: the status has no field {field}"
    texts = {"phase", "reason", "job_id", "plan_json", "host", "standing", "workers", "checkpoint_steps", "guarantee"}
    for figure in sorted(read - texts):
        for use in re.findall(rf".{{0,20}}\b(?:status|worker)\.{figure}\b", page):
            if not re.search(r"(?:show|number|duration)\((?:status|worker)\.\w+$", use):
                yield f"status.html: {figure} is shown though it may be absent: {use.strip()}"


def asked(text):
    names = set()
    for name in METRIC.findall(text):
        for suffix in SUFFIXES:
            if name.endswith(suffix):
                name = name[: -len(suffix)]
        names.add(name)
    return names


def main():
    root = pathlib.Path(sys.argv[1])
    problems = []
    known = exported(root)

    dashboard = json.loads((root / "metrics/dashboard/grafana.json").read_text(encoding="utf-8"))
    expressions = []
    ids = []
    for panel in dashboard["panels"]:
        ids.append(panel["id"])
        for target in panel.get("targets", []):
            expressions.append(target["expr"])
            if target["datasource"]["uid"] != "${datasource}":
                problems.append(f"panel {panel['title']}: a fixed data source")
    if len(set(ids)) != len(ids):
        problems.append("two panels with one id")
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    expected_rows = ["State", "Throughput", "Loss", "Predicted against measured", "Recovery", "Checkpoint", "Links"]
    if rows != expected_rows:
        problems.append(f"rows {rows}, expected {expected_rows}")

    alerts = root / "metrics/alerts.yml"
    for source, text in (("grafana.json", "\n".join(expressions)), ("alerts.yml", alerts.read_text(encoding="utf-8"))):
        for name in sorted(asked(text) - known):
            problems.append(f"{source}: nothing exports {name}")

    promtool = shutil.which("promtool")
    if promtool is None:
        print("SKIPPED: promtool is not installed, the alert rules' syntax is not checked")
    else:
        checked = subprocess.run([promtool, "check", "rules", str(alerts)], capture_output=True, text=True, timeout=120)
        if checked.returncode != 0:
            problems.append(checked.stdout + checked.stderr)
        # Every expression of the dashboard as a rule: promtool parses it. Grafana's own variables get values.
        rules = ["groups:", "- name: dashboard", "  rules:"]
        for i, expression in enumerate(expressions):
            plain = expression.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$job", ".+")
            rules += [f"  - record: panel_{i}", f"    expr: {json.dumps(plain)}"]
        checked = subprocess.run([promtool, "check", "rules", "/dev/stdin"], input="\n".join(rules) + "\n",
                                 capture_output=True, text=True, timeout=120)
        if checked.returncode != 0:
            problems.append(checked.stdout + checked.stderr)

    problems += page_problems(root)
    for problem in problems:
        print(f"metrics: error: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
