"""A job's coordinator and workers in guests of scripts/rdma-vm, for job_test.py.

Usage: job_in_guest.py HEDDLE JOB LEADER FAULT PLAN. LEADER is who has the coordinator beside its worker: `0`, guest 0,
which then prints what `lead` returns as one line of JSON, or `host`, the machine itself. HEDDLE_TEST_CONTROL is the
program that commands the network.
"""
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import processes  # pylint: disable=wrong-import-position,import-error

WORKERS = "abc"
PORT = 4600
VICTIM = 2
FAULT_STEP = 12


def wait_for(what, condition, seconds):
    limit = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > limit:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def worker(heddle, coordinator, name, address):
    return subprocess.Popen([heddle, "worker", "--coordinator", coordinator, "--name", name, "--bind", address],
                            stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=processes.tied())


class Lead:
    """A coordinator and one worker, the job that it runs by a plan file, and a fault in the middle of it. `shared`: a
    folder that all guests and the machine see; the run folder is in it."""

    def __init__(self, heddle, job, plan, shared, address):
        self.heddle, self.job, self.plan, self.shared, self.address = heddle, job, plan, shared, address
        self.run = shared / "run"
        self.coordinator = f"{address}:{PORT}"

    def events(self, *kinds):
        try:
            lines = (self.run / "events.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] in kinds]

    def step(self):
        return max((event["step"] for event in self.events("step")), default=0)

    def finished(self):
        failed = self.events("job_failed")
        if failed:
            sys.exit(f"the job failed: {failed[0]}")
        return bool(self.events("job_finished"))

    def bytes_sent(self):
        """From every worker's metrics: {worker: {transport: bytes}}, and {worker: bytes} of what devices carried from
        tensor to tensor."""
        metrics = json.loads((self.run / "job.json").read_text(encoding="utf-8"))["metrics"]
        groups = json.loads(fetch(metrics, "/sd"))
        found, placed = {}, dict.fromkeys(WORKERS, 0)
        for name in WORKERS:
            [address] = [group["targets"][0] for group in groups if group["labels"]["worker"] == name]
            found[name] = {}
            for line in fetch(address, "/metrics").splitlines():
                if line.startswith("heddle_comm_sent_bytes_total{"):
                    labels, value = line.split("{", 1)[1].rsplit("} ", 1)
                    label = dict(word.split("=", 1) for word in labels.replace('"', "").split(","))
                    found[name][label["transport"]] = float(value)
                elif line.startswith("heddle_comm_placed_bytes_total{"):
                    placed[name] += float(line.rsplit(" ", 1)[1])
        return found, placed

    def lead(self, name, fault):
        """Runs the job to its end; what it printed, whom it lost, and who sent over what before the fault."""
        store = self.shared / "store"
        determinism = json.loads(pathlib.Path(self.plan).read_text(encoding="utf-8"))["determinism"]
        coordinator = subprocess.Popen([self.heddle, "serve", "--store", str(store), "--listen", self.coordinator,
                                        "--insecure", "--output-root", str(self.shared)],
                                       stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=processes.tied())
        own = None
        try:
            wait_for("the coordinator", lambda: (store / "job.json").exists() or coordinator.poll() is not None, 60)
            (self.shared / "serving").touch()
            own = worker(self.heddle, self.coordinator, name, self.address)
            subprocess.run([self.heddle, "submit", self.job, "--coordinator", self.coordinator, "--out", str(self.run),
                            "--set", f"plan={self.plan}", "--set", f"determinism={determinism}"],
                           check=True, timeout=120, stdout=sys.stderr)
            wait_for("steps", lambda: self.step() >= FAULT_STEP or self.finished(), 120)
            sent, placed = self.bytes_sent()
            if fault == "power_off":
                control("power-off", VICTIM)
            elif fault == "cut":
                control("cut", VICTIM, "*")  # It hears everyone, and is heard by nobody.
            wait_for("the job's end", self.finished, 240)
            if fault == "cut":
                control("power-off", VICTIM)
            if own.wait(timeout=60) != 0:
                sys.exit(f"worker {name}: exit code {own.returncode}")
        finally:
            for process in (own, coordinator):
                if process is not None:
                    process.kill()
        return {"losses": {str(event["step"]): event["loss"] for event in self.events("step")},
                "lost": [event["worker"] for event in self.events("worker_lost")],
                "resumed": [(event["seconds"], event["steps_repeated"]) for event in self.events("resumed")],
                "sent": sent, "placed": placed}


def control(*words):
    command = [os.environ["HEDDLE_TEST_CONTROL"], *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=30)


def fetch(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as reply:
        return reply.read().decode()


def main():
    heddle, job, leader, fault, plan = sys.argv[1:]
    guest, address = os.environ["HEDDLE_GUEST"], os.environ["HEDDLE_ADDRESS"]
    shared = pathlib.Path(os.environ["HEDDLE_VM"]) / "job"
    if guest == leader:
        shared.mkdir()
        print(json.dumps(Lead(heddle, job, plan, shared, address).lead(WORKERS[int(guest)], fault)))
        return
    wait_for("the coordinator", (shared / "serving").exists, 60)
    coordinator = f"10.9.0.{254 if leader == 'host' else int(leader) + 1}:{PORT}"
    code = worker(heddle, coordinator, WORKERS[int(guest)], address).wait(timeout=400)
    if fault == "cut" and int(guest) == VICTIM:  # It may hear that it was given up; its power goes in the end.
        wait_for("the power to go off", lambda: False, 300)
    if code != 0:
        sys.exit(f"guest {guest}: the worker failed")


if __name__ == "__main__":
    main()
