"""Every figure that a job shows: in the metrics of each process, in the status and in the events, before there is a
job, before its first step, while it trains and when it has ended. What does not exist is absent: a figure that is shown
before any step, and every 0, is in a list of this test with its reason. Counters are there from the start, and every
expression of the dashboard and of the alerts asks for what a real run exports.
"""
import json
import os
import re
import sys
import urllib.error

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import REPOSITORY, Scratch, get, heddle, wait_for  # noqa: E402
from harness.served import Cluster  # noqa: E402
from harness.text_data import prose  # noqa: E402

JOB = """name: figures
steps: 1
seed: 3
model: {{model_type: llama, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 3, num_attention_heads: 4,
  num_key_value_heads: 2}}
data: {{text: {text}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 12, sequence: 48}}
optimizer: {{learning_rate: 1e-3}}
validation: {{every: 3}}
workers: [{{name: a, emulate: {{speed: 0.5}}}}, {{name: b, emulate: {{speed: 0.4}}}}]
checkpoint: {{every: 3, replicas: {{every: 2}}}}
"""
ENDLESS, FEW = 100_000, 6
TARGET_LABELS = {"job", "instance", "worker"}  # Prometheus' own, and those of service discovery.

# Gauges of a coordinator that has no job, with their values; any: None.
COORDINATOR_WITHOUT_A_JOB = {"heddle_build_info": 1, "heddle_workers": 0, "heddle_job_running": 0}
# Of the processes that wait for the job's first step. A worker is there; its replicas' memory is not yet taken.
COORDINATOR_BEFORE_A_STEP = {"heddle_build_info": 1, "heddle_workers": None, "heddle_job_running": 1}
WORKER_BEFORE_A_STEP = {}
# Where a gauge may be 0 while the job trains.
GAUGES_AT_ZERO = {
    "heddle_comm_pair_transport": "no pair of the newest group is joined so",
    "heddle_device_sums": "the workers are processors",
    "heddle_waiting_seconds": "nobody was waited for",
    "heddle_job_running": "the job has ended",
    "heddle_workers": "they have been released",
}
# Counters that need more than this run has: certificates, ports of RDMA.
NOT_COUNTED_HERE = {"heddle_comm_rail_connections_total", "heddle_comm_rail_fallbacks_total"}
# Numbers of the status before a step, by their paths.
STATUS_BEFORE_A_STEP = {
    "step": "0: none yet",
    "total_steps": "the job says it",
    "workers.pid": "of the process",
    "workers.applied_step": "0: none",
    "workers.slowdown": "it has a profile",
}
STATUS_AT_ZERO = {"step": "none yet", "workers.applied_step": "none", "workers.may_stay": "",
                  "seconds_left": "it was the last step"}
EVENTS_AT_ZERO = {
    "step.first_sample": "the order begins with sample 0",
    "decision.follows": "there was no generation before",
    "decision.alternatives.step": "the first state",
}


class Metrics:
    """What one process exposes."""

    def __init__(self, address):
        self.kinds, self.samples = {}, []
        for line in get(address).splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                self.kinds[name] = kind
            elif not line.startswith("#"):
                name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
                self.samples.append((name, dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), float(value)))

    def names(self):
        return {name for name, _, _ in self.samples}

    def of_kind(self, kind):
        return [(name, labels, value) for name, labels, value in self.samples if self.kinds.get(name) == kind]

    def values(self, name):
        return [value for other, _, value in self.samples if other == name]


def listed_counters(who):
    """Counters and histograms that docs/reference/metrics.md promises of a coordinator ("c") or worker ("w")."""
    with open(os.path.join(REPOSITORY, "docs", "reference", "metrics.md"), encoding="utf-8") as file:
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file
                if line.startswith("| `heddle_")]
    names = {row[0].strip("`"): row[1] for row in rows if who in row[-2].split(", ")}
    found = {name: kind for name, kind in names.items() if kind in ("counter", "histogram")}
    assert len(found) > 10 if who == "w" else len(found) > 8, found
    return {name: kind for name, kind in found.items() if name not in NOT_COUNTED_HERE}


def check_counters_are_there(metrics, who, at_zero):
    for name, kind in listed_counters(who).items():
        values = metrics.values(name if kind == "counter" else name + "_count")
        assert values, f"{who}: no {name}"
        assert not at_zero or not any(values), f"{who}: {name} begins at {values}"


def check_gauges(metrics, allowed, what):
    for name, labels, value in metrics.of_kind("gauge"):
        if name.startswith("process_"):
            assert value > 0, f"{what}: {name} {value}"
            continue
        assert name in allowed, f"{what}: {name}{labels} {value} is shown before it exists"
        assert allowed[name] in (None, value), f"{what}: {name}{labels} {value}, expected {allowed[name]}"


def numbers(value, path=""):
    """Each number of a JSON value with its path; 64-bit integers are texts there."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key not in ("plan_json", "plan", "job_id", "job", "name", "host", "time"):
                yield from numbers(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for below in value:
            yield from numbers(below, path)
    elif isinstance(value, bool):
        return
    elif isinstance(value, (int, float)) or (isinstance(value, str) and re.fullmatch(r"-?\d+", value)):
        yield path, float(value)


def check_status(status, allowed, what):
    for path, value in numbers(status):
        assert path in allowed, f"{what}: {path} {value} is shown before it exists: {status}"
        assert value or path in STATUS_AT_ZERO, f"{what}: {path} is 0"


def without_a_job(cluster, coordinator):
    metrics = Metrics(coordinator)
    check_gauges(metrics, COORDINATOR_WITHOUT_A_JOB, "without a job")
    check_counters_are_there(metrics, "c", at_zero=True)
    status = cluster.status()
    assert status == json.loads(get(coordinator, "/status")), status
    check_status(status, {}, "without a job")
    assert get(coordinator, "/healthz") == "ok\n" and get(coordinator, "/readyz") == "ok\n"


def before_a_step(cluster, coordinator):
    """One of two workers has come and has measured itself and its link: the job waits for the other."""
    cluster.worker("a")
    wait_for("a worker with a profile", lambda: cluster.run.events("worker_joined"))
    status = cluster.status()
    check_status(status, STATUS_BEFORE_A_STEP, "before a step")
    check_gauges(Metrics(coordinator), COORDINATOR_BEFORE_A_STEP, "before a step")
    [address] = [worker["metrics_address"] for worker in status["workers"]]
    metrics = Metrics(address)
    check_gauges(metrics, WORKER_BEFORE_A_STEP, "a worker before a step")
    # Its link was measured: that is no traffic of the job. Replicas are a generation's.
    for name in sorted(set(listed_counters("w")) - {"heddle_replica_seconds", "heddle_replica_failures_total"}):
        values = metrics.values(name) or metrics.values(name + "_count")
        assert values and not any(values), f"a worker before a step: {name} {values}"
    shown = heddle("status", "--coordinator", cluster.listen).stdout
    none_yet = r"forming  generation -  step 0/100000  loss -  - tokens/s  step - s \(predicted - s\)\n"
    assert re.match(none_yet, shown), shown
    assert get(address, "/healthz") == "ok\n"
    try:
        raise AssertionError(f"ready before a step: {get(address, '/readyz')}")
    except urllib.error.HTTPError as error:
        assert (error.code, error.read()) == (503, b"no step of a generation yet\n")


def expressions():
    """Of the dashboard, its annotations among them, and of the alerts."""
    with open(os.path.join(REPOSITORY, "metrics", "dashboard", "grafana.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        if annotation.get("expr"):
            yield annotation["name"], annotation["expr"]
    with open(os.path.join(REPOSITORY, "metrics", "alerts.yml"), encoding="utf-8") as file:
        text = file.read()
    alert = r"- alert: (\w+)\n(?:\s+#.*\n)*\s+expr: (?:>-\n)?((?:.|\n)*?)\n\s+(?:for|labels):"
    yield from re.findall(alert, text)


def check_expressions(processes):
    """Each selector finds series of the run, and each label that is grouped by is one of theirs."""
    samples = [sample for metrics in processes for sample in metrics.samples]
    labels_of = {}
    for name, labels, _ in samples:
        labels_of.setdefault(name, set()).update(labels)
    asked = 0
    for what, expression in expressions():
        names = set(re.findall(r"\b(?:heddle|process)_\w+", expression))
        known = set(TARGET_LABELS)
        for name in names:
            # A recovery is what this run does without.
            if "recovery_seconds" in name and name not in labels_of:
                known.add("source")
                continue
            assert name in labels_of, f"{what}: no process exports {name}"
            known |= labels_of[name]
            asked += 1
        for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            for label in re.split(r", *", grouped):
                assert label in known, f"{what}: no series has the label {label}"
        for label in re.findall(r"(\w+)=~?\"", expression):
            assert label in known, f"{what}: no series has the label {label}"
    assert asked > 30, asked


def while_it_trains(cluster, coordinator):
    cluster.worker("b")
    wait_for("a validation, and a checkpoint",
             lambda: cluster.run.events("validation") and cluster.run.events("checkpoint"))
    cluster.wait_step(8)
    status = cluster.status()
    addresses = {worker["name"]: worker["metrics_address"] for worker in status["workers"]}
    processes = {name: Metrics(address) for name, address in addresses.items()}
    processes["coordinator"] = Metrics(coordinator)
    for path, value in numbers(status):
        assert value or path in STATUS_AT_ZERO, f"{path} is 0: {status}"
    for name, metrics in processes.items():
        check_counters_are_there(metrics, "c" if name == "coordinator" else "w", at_zero=False)
        for gauge, labels, value in metrics.of_kind("gauge"):
            assert value or gauge in GAUGES_AT_ZERO, f"{name}: {gauge}{labels} is 0"
        if name != "coordinator":
            [actual], [predicted], [tensors], [most], [process], [expected] = [metrics.values(figure) for figure in (
                "heddle_memory_bytes", "heddle_predicted_memory_bytes", "heddle_device_memory_bytes",
                "heddle_device_memory_peak_bytes", "heddle_process_memory_peak_bytes",
                "heddle_predicted_process_memory_bytes")]
            assert 0.5 * predicted < actual <= predicted, (name, actual, predicted)
            assert 0.1 * actual < tensors <= most < process, (name, actual, tensors, most, process)
            assert 0.8 < process / expected < 1.25, (name, process, expected)
            assert get(addresses[name], "/readyz") == "ok\n"
    check_expressions(processes.values())


def when_it_has_ended(cluster, coordinator):
    for name in "ab":
        cluster.worker(name)
    cluster.finish()
    metrics = Metrics(coordinator)
    assert metrics.values("heddle_job_running") == [0] and metrics.values("heddle_workers") == [0], metrics.samples
    for path, value in numbers(cluster.status()):
        assert value or path in STATUS_AT_ZERO, f"{path} is 0 at the end"
    for event in cluster.run.events():
        for path, value in numbers(event, event["event"]):
            assert value or path in EVENTS_AT_ZERO, f"{path} is 0: {event}"


def serve(cluster):
    """Starts the coordinator; the address of its metrics."""
    cluster.serve()
    with open(os.path.join(cluster.store, "job.json"), encoding="utf-8") as file:
        return json.load(file)["metrics"]


def main():
    with Scratch() as folder:
        job = os.path.join(folder, "job.yaml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(text=prose(folder)))
        with Cluster(folder, "figures") as cluster:
            coordinator = serve(cluster)
            without_a_job(cluster, coordinator)
            cluster.submit(job, f"steps={ENDLESS}")
            before_a_step(cluster, coordinator)
            while_it_trains(cluster, coordinator)
        with Cluster(folder, "ended") as cluster:
            coordinator = serve(cluster)
            cluster.submit(job, f"steps={FEW}")
            when_it_has_ended(cluster, coordinator)


main()
