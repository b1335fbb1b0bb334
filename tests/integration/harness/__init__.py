"""What the integration tests share: real `heddle` processes, their run folders, kills at chosen moments.

Usage of a test: TEST.py PATH_OF_HEDDLE. Every wait has a bound. Seeds: tests/support/seeds.py.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(REPOSITORY, "tests", "support"))
import processes  # pylint: disable=wrong-import-position,import-error
import seeds  # pylint: disable=wrong-import-position,import-error
seed = seeds.seed
HEDDLE = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build/release/bin/heddle"
# What one run of a test measures of its workers serves all of its runs, and no other test: it may have measured beside
# another load. It begins with what measured.py has measured for all.
CACHE = tempfile.TemporaryDirectory(prefix="heddle-test-cache-")  # pylint: disable=consider-using-with
os.environ["HEDDLE_CACHE"] = CACHE.name
if os.path.isdir(os.environ.get("HEDDLE_TEST_MEASURED", "")):
    shutil.copytree(os.environ["HEDDLE_TEST_MEASURED"], CACHE.name, dirs_exist_ok=True)
SMOKE = os.path.join(REPOSITORY, "configs", "smoke.yaml")


class Scratch:
    """A folder that is removed when the test has passed."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="heddle-test-")
        return self.path

    def __exit__(self, kind, *_):
        if kind is None:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print(f"left for inspection: {self.path}", flush=True)


# Seconds after which a wait has found a hang: no machine is as slow as that.
PATIENCE = 120


def wait_for(what, condition, timeout=PATIENCE):
    """The first true value of condition(); fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout} s: {what}")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Run:
    """One `heddle train` and its folder."""

    def __init__(self, folder, job=SMOKE, overrides=()):
        self.folder = folder
        self.command = [HEDDLE, "train", job, "--out", folder, "--quiet"]
        for override in overrides:
            self.command += ["--set", override]
        self.process = None

    def start(self):
        self.log = open(self.folder + ".err", "ab")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                        cwd=os.path.dirname(self.folder), preexec_fn=processes.tied())
        return self

    def wait(self, timeout=2 * PATIENCE):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"no end within {timeout} s: {self.errors()[-2000:]}")
        finally:
            self.log.close()
        return code

    def finish(self, timeout=2 * PATIENCE):
        code = self.wait(timeout)
        assert code == 0, f"exit code {code}: {self.errors()[-2000:]}"
        return self

    def errors(self):
        with open(self.folder + ".err", encoding="utf-8", errors="replace") as log:
            return log.read()

    def events(self, kind=None):
        out = []
        try:
            with open(os.path.join(self.folder, "events.jsonl"), encoding="utf-8") as lines:
                for line in lines:
                    if not line.endswith("\n"):
                        break
                    event = json.loads(line)
                    if kind is None or event["event"] == kind:
                        out.append(event)
        except FileNotFoundError:
            pass
        return out

    def step(self):
        steps = self.events("step")
        return steps[-1]["step"] if steps else 0

    def losses(self):
        """By step; a later event of a step replaces an earlier one."""
        return {event["step"]: event["loss"] for event in self.events("step")}

    def job(self):
        try:
            with open(os.path.join(self.folder, "job.json"), encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):
            return {"coordinator": "", "metrics": "", "workers": []}

    def pids(self):
        return {worker["name"]: worker["pid"] for worker in self.job()["workers"]}

    def wait_step(self, step, timeout=PATIENCE):
        wait_for(f"step {step}", lambda: self.step() >= step or self.process.poll() is not None, timeout)

    def kill(self, worker):
        pid = self.pids()[worker]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_all(self):
        """The coordinator and all workers, which are gone when it returns."""
        pids = self.pids()
        self.process.kill()
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.wait()


def heddle(*arguments, timeout=PATIENCE):
    return subprocess.run([HEDDLE, *arguments], capture_output=True, text=True, timeout=timeout, check=False,
                          stdin=subprocess.DEVNULL)


def get(address, path="/metrics"):
    """The page of a process of ours."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as reply:
        return reply.read().decode()


def trained(addresses):
    """The last step that the metrics at any of these addresses tell of: the coordinator may hear of none meanwhile."""
    steps = [0]
    for address in addresses:
        try:
            page = get(address)
        except OSError:
            continue  # It was killed.
        steps += [int(float(line.split()[1])) for line in page.splitlines() if line.startswith("heddle_step ")]
    return max(steps)


def check_samples(run, steps, global_batch):
    """In the steps that count each sample of the order was consumed exactly once."""
    counted = []
    for event in run.events("step"):
        while counted and counted[-1]["step"] >= event["step"]:
            counted.pop()  # The job went back behind it.
        counted.append(event)
    assert [event["step"] for event in counted] == list(range(1, steps + 1)), [event["step"] for event in counted]
    for event in counted:
        first = (event["step"] - 1) * global_batch
        assert event["first_sample"] == first and event["samples"] == global_batch, event


def check_same(run, undisturbed, steps):
    """The loss curve is that of the undisturbed run, to the last printed digit."""
    ours, theirs = run.losses(), undisturbed
    different = [step for step in range(1, steps + 1) if ours.get(step) != theirs.get(step)]
    assert not different, f"losses differ at steps {different[:10]}"
