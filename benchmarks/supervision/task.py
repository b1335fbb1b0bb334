"""What it costs training that it is supervised: digests of replicas, drift, certificates.

step_seconds     median time of a step under `heddle serve`: two workers, the quickstart's model, one plan for all runs
over_bare        mean time of a step over that of the bare run of the same repetition, less 1; median
"""
import json
import os
import subprocess

from support import heddle, report

BARE = ["elastic.digest_every=0", "elastic.drift=observe"]
CASES = {"bare": (False, BARE), "digests": (False, []), "certificates": (True, [])}
FULL = {"repetitions": 7, "steps": 320}
QUICK = {"repetitions": 2, "steps": 140}
WARM = 20  # Steps that are not counted.
WORKERS = "ab"
TIMEOUT = 600


class Served:
    """One job under `heddle serve`, with a process a worker; they end with the `with`."""

    def __init__(self, folder, lab):
        self.folder, self.lab, self.processes = folder, lab, []
        self.run = heddle.Train(os.path.join(folder, "run"), "")  # Its events are read, nothing is started.

    def __enter__(self):
        os.makedirs(self.folder)
        self.log = open(os.path.join(self.folder, "log"), "w", encoding="utf-8")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        self.log.close()

    def start(self, *words):
        self.processes.append(subprocess.Popen([heddle.BINARY, *words], stdin=subprocess.DEVNULL, stdout=self.log,
                                               stderr=self.log))

    def certs(self, party):
        return ["--certs", os.path.join(self.lab, party)] if self.lab else []

    def train(self, job, steps, overrides):
        """The step events."""
        store = os.path.join(self.folder, "store")
        address = os.path.join(store, "job.json")
        guard = self.certs("coordinator") or ["--insecure"]
        self.start("serve", "--store", store, "--listen", "127.0.0.1:0", "--output-root", self.folder, *guard)
        heddle.wait_until("the coordinator", lambda: os.path.exists(address), TIMEOUT)
        with open(address, encoding="utf-8") as file:
            coordinator = ["--coordinator", json.load(file)["coordinator"]]
        for name in WORKERS:
            self.start("worker", *coordinator, "--name", name, *self.certs("worker"))
        changes = [word for override in overrides for word in ("--set", override)]
        heddle.command("submit", job, *coordinator, "--out", self.run.folder, *changes, *self.certs("operator"))
        heddle.wait_until("the last step", lambda: len(self.run.events("step")) >= steps, TIMEOUT)
        return self.run.events("step")


def run(options, rows):
    settings = QUICK if options.quick else FULL
    steps = settings["steps"]
    job = heddle.two_workers(options.folder, steps, WARM)
    lab = os.path.join(options.folder, "lab")
    heddle.command("certs", "init", lab, *(word for name in WORKERS for word in ("--worker", name)))
    # One plan for all: what is searched depends on what was measured at each start.
    plan = os.path.join(options.folder, "plan.json")
    with Served(os.path.join(options.folder, "first"), None) as first:
        first.train(job, WARM, [])
        with open(plan, "w", encoding="utf-8") as file:
            json.dump(first.run.events("plan")[-1]["plan"], file)
    medians = {case: [] for case in CASES}
    means = {case: [] for case in CASES}
    for repetition in range(options.repeat or settings["repetitions"]):
        for case, (certified, overrides) in CASES.items():
            if case != "bare" and options.only not in case:
                continue
            with Served(os.path.join(options.folder, f"{case}-{repetition}"), lab if certified else None) as served:
                events = served.train(job, steps, ["plan=" + plan, *overrides])
            medians[case].append(report.median([event["seconds"] for event in events[WARM:]]))
            means[case].append((events[-1]["time"] - events[WARM]["time"]) / (len(events) - 1 - WARM))
    for case in CASES:
        if not medians[case]:
            continue
        shape = {"supervision": case, "workers": len(WORKERS)}
        rows.add(shape, "heddle", True, "step_seconds", report.median(medians[case]), "s")
        if case != "bare":
            over = [ours / bare - 1 for ours, bare in zip(means[case], means["bare"])]
            rows.add(shape, "heddle", True, "over_bare", report.median(over), "ratio")
    return False
