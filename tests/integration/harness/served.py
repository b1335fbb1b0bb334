"""A persistent coordinator and workers that were started by hand, for the tests that need them one by one."""
import json
import os
import subprocess

from harness import HEDDLE, PATIENCE, Run, alive, heddle, processes, wait_for
from ports import held_port

JOB = """name: served
steps: {steps}
seed: 3
model:
  model_type: llama
  hidden_size: 64
  intermediate_size: 160
  num_hidden_layers: 3
  num_attention_heads: 4
  num_key_value_heads: 2
data: {{text: {text}, validation_fraction: 0.1}}
batch: {{microbatch: 2, global: 12, sequence: 48}}
optimizer: {{learning_rate: 1e-3, warmup_steps: 5}}
workers:
  - {{name: a, emulate: {{speed: 0.10}}}}
  - {{name: b, emulate: {{speed: 0.08}}}}
  - {{name: c, emulate: {{speed: 0.06}}}}
checkpoint: {{every: 10}}
"""
# The workers are slow on purpose: steps are long enough for a fault to hit them, and cost waiting instead of CPU time.
GLOBAL_BATCH = 12
WORKERS = "abc"
# One worker at its full speed: neither plan nor speed changes a loss.
ALONE = "workers=[{name: a}]"
# For jobs that nobody leaves: a machine that stands still has nobody given up.
PATIENT = "elastic.lease=20s"


def write_job(folder, text, steps):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB.format(text=text, steps=steps))
    return path


def undisturbed_losses(folder, job, *overrides):
    """The losses of the job by one worker at its full speed."""
    return Run(os.path.join(folder, "undisturbed"), job, [ALONE, *overrides]).start().finish().losses()


def losses_until(folder, job, last, *overrides):
    """The same of a job that does not end by itself, as far as to a step."""
    alone = Run(os.path.join(folder, f"undisturbed-{last}"), job, [ALONE, *overrides]).start()
    alone.wait_step(last, 10 * PATIENCE)
    alone.process.kill()
    alone.wait()
    return alone.losses()


class Cluster:
    """`heddle serve` and its workers; everything ends with the `with`. `run` is the job's run folder."""

    def __init__(self, folder, name, listen=None, lab=None):
        """`listen`: the coordinator's address; without, one that nobody else gets while the coordinator is away.
        `lab`: a folder that `heddle certs init` has made; without, nobody has a certificate."""
        self.folder = folder
        self.lab = lab
        self.store = os.path.join(folder, name + "-store")
        self.run = Run(os.path.join(folder, name))
        self.listen = listen or f"127.0.0.1:{held_port()}"
        self.log_path = os.path.join(folder, name + ".log")
        self.log = open(self.log_path, "ab")
        self.coordinator = None
        self.workers = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [self.coordinator, *self.workers.values()]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(60)
        self.log.close()

    def start(self, *command):
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                preexec_fn=processes.tied())

    def serve(self):
        """Starts the coordinator; again at the same address when it ran before."""
        path = os.path.join(self.store, "job.json")
        if os.path.exists(path):
            os.remove(path)
        guard = self.certs("coordinator") or ["--insecure"]
        self.coordinator = self.start(HEDDLE, "serve", "--store", self.store, "--listen", self.listen, *guard,
                                      "--output-root", self.folder)
        wait_for("the coordinator's address", lambda: os.path.exists(path) or self.coordinator.poll() is not None)
        assert self.coordinator.poll() is None, self.errors()
        with open(path, encoding="utf-8") as file:
            self.listen = json.load(file)["coordinator"]

    def certs(self, party):
        return ["--certs", os.path.join(self.lab, party)] if self.lab else []

    def worker(self, name, *options, prefix=(), program=HEDDLE):
        self.workers[name] = self.start(*prefix, program, "worker", "--coordinator", self.listen, "--name", name,
                                        *self.certs("worker"), *options)

    def submit(self, job, *overrides):
        changes = [word for override in overrides for word in ("--set", override)]
        done = heddle("submit", job, "--coordinator", self.listen, "--out", self.run.folder, *changes,
                      *self.certs("operator"))
        assert done.returncode == 0, done.stderr

    def status(self):
        done = heddle("status", "--coordinator", self.listen, "--json", *self.certs("viewer"))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def errors(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def finished(self):
        events = self.run.events()
        assert not any(event["event"] == "job_failed" for event in events), events[-1]
        return bool(events) and events[-1]["event"] == "job_finished"

    def wait_step(self, step, timeout=PATIENCE):
        wait_for(f"step {step}", lambda: self.run.step() >= step or self.finished(), timeout)

    def finish(self, timeout=2 * PATIENCE):
        """Waits for the job's end, and that it releases its workers with exit code 0."""
        wait_for("the job's end", self.finished, timeout)
        for name, process in self.workers.items():
            assert process.wait(60) == 0, f"worker {name}: exit code {process.returncode}"

    def kill(self, name):
        process = self.workers.pop(name)
        process.kill()
        process.wait(60)

    def check_alive(self, pids):
        for name, pid in pids.items():
            code = self.workers[name].poll()
            assert alive(pid), f"worker {name} did not keep its process: exit code {code}: {self.errors()}"
