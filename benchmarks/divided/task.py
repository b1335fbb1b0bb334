"""What dividing the optimizer does to a step: two replicas in two network namespaces, between them a link of 1 Gbit/s.

step_seconds     median time of a step in bf16, exact, with whole optimizers and with divided ones
over_whole       the median by repetition of step_seconds over that of whole optimizers
predicted_bytes  the larger of the two workers' predicted peak memory
"""
import json
import os
import subprocess

from support import heddle, report
from support.network import Network

JOB = """name: divided
steps: {steps}
seed: 3
model: {{model_type: llama, hidden_size: 384, intermediate_size: 1024, num_hidden_layers: 8, num_attention_heads: 6}}
data: {{text: /usr/share/games/fortunes}}
batch: {{microbatch: 1, global: 2, sequence: 64}}
optimizer: {{learning_rate: 1e-3, warmup_steps: 2, slices: 64}}
precision: bf16
plan: {plan}
threads: 1
workers: [{{name: w0}}, {{name: w1}}]
elastic: {{drift: observe}}
checkpoint: {{every: 0, last: false}}
"""
SEGMENTS = 18  # Of the model: two a layer, the embedding and the head.
CASES = ("whole", "divided")
FULL = {"repetitions": 5, "steps": 60}
QUICK = {"repetitions": 2, "steps": 30}
WARM = 6  # Steps that are not counted.
TIMEOUT = 240


def shape(_, end):
    return [["qdisc", "add", "dev", end, "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms"]]


def write_job(folder, steps):
    """One pipeline a worker: what is compared is the reduction, which the search would avoid."""
    plan = os.path.join(folder, "plan.json")
    stage = {"first_segment": 0, "last_segment": SEGMENTS, "recompute": False, "ahead": 0}
    pipelines = [{"stages": [{"worker": rank, **stage}], "first_microbatch": rank, "microbatches": 1}
                 for rank in range(2)]
    with open(plan, "w", encoding="utf-8") as file:
        json.dump({"generation": 0, "workers": ["w0", "w1"], "pipelines": pipelines, "determinism": "exact",
                   "predicted_step_seconds": 0, "predicted_peak_bytes": [], "transports": []}, file)
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(steps=steps, plan=plan))
    return path


class Cluster:
    """A coordinator beside the first worker, and the second one behind the link; all end with the `with`."""

    def __init__(self, network, folder):
        self.network = network
        self.folder = folder
        self.log = None
        self.processes = []

    def __enter__(self):
        os.makedirs(self.folder)
        self.log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait(60)
        self.log.close()

    def start(self, island, *words):
        prefix, _ = self.network.place(island)
        self.processes.append(subprocess.Popen([*prefix, heddle.BINARY, *words], stdout=self.log, stderr=self.log,
                                               stdin=subprocess.DEVNULL))
        return self.processes[-1]

    def failure(self):
        self.log.seek(0)
        return heddle.Failure("divided: " + heddle.last_line(self.log.read()))

    def train(self, job, case):
        """The events of a run."""
        store = os.path.join(self.folder, "store")
        known = os.path.join(store, "job.json")
        hosts = [self.network.place(island)[1] for island in range(2)]
        coordinator = self.start(0, "serve", "--store", store, "--listen", hosts[0] + ":0", "--insecure",
                                 "--output-root", self.folder)
        heddle.wait_until("the coordinator", lambda: os.path.exists(known) or coordinator.poll() is not None, 30)
        if coordinator.poll() is not None:
            raise self.failure()
        with open(known, encoding="utf-8") as file:
            address = json.load(file)["coordinator"]
        for rank, host in enumerate(hosts):
            self.start(rank, "worker", "--coordinator", address, "--name", f"w{rank}", "--bind", host)
        out = os.path.join(self.folder, "run")
        submit = self.start(0, "submit", job, "--coordinator", address, "--out", out, "--set",
                            f"parallel.optimizer={case}")
        if submit.wait(60) != 0:
            raise self.failure()

        def events():
            try:
                with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
                    return [json.loads(line) for line in file if line.endswith("\n")]
            except OSError:
                return []
        ends = ("job_finished", "job_failed")
        heddle.wait_until("the job's end", lambda: any(event["event"] in ends for event in events()), TIMEOUT)
        if events()[-1]["event"] != "job_finished":
            raise self.failure()
        return events()


def measure(options, settings, rows):
    job = write_job(options.folder, settings["steps"])
    seconds = {case: [] for case in CASES}
    memory = {}
    with Network(shape) as network:
        for repetition in range(options.repeat or settings["repetitions"]):
            for case in CASES:
                with Cluster(network, os.path.join(options.folder, f"{case}-{repetition}")) as cluster:
                    events = cluster.train(job, case)
                steps = [event["seconds"] for event in events if event["event"] == "step"]
                seconds[case].append(report.median(steps[WARM:]))
                [plan] = [event["plan"] for event in events if event["event"] == "plan"]
                assert plan.get("optimizer", "whole") == case, plan
                memory[case] = max(plan["predicted_peak_bytes"])
    for case in CASES:
        named = {"optimizer": case, "workers": 2, "megabits": 1000}
        rows.add(named, "heddle", True, "step_seconds", report.median(seconds[case]), "s")
        rows.add(named, "heddle", True, "predicted_bytes", memory[case], "bytes")
    over = [ours / theirs for ours, theirs in zip(seconds["divided"], seconds["whole"])]
    divided = {"optimizer": "divided", "workers": 2, "megabits": 1000}
    rows.add(divided, "heddle", True, "over_whole", report.median(over), "ratio")


def run(options, rows):
    if os.geteuid() != 0:
        report.say("divided: network namespaces need root; nothing was measured")
        return True
    try:
        measure(options, QUICK if options.quick else FULL, rows)
    except heddle.Failure as failure:
        report.say(str(failure))
        return True
    return False
