"""Real `heddle` processes and what they wrote."""
import json
import os
import signal
import subprocess
import time
import urllib.request

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Every run measures its workers anew: repetitions are independent. The workers of one run share what is measured, as
# the processes of a machine do; side by side they would falsify each other's figures.
os.environ["HEDDLE_CACHE"] = ""
BINARY = os.path.abspath(os.environ.get("HEDDLE", os.path.join(REPOSITORY, "build", "release", "bin", "heddle")))


class Failure(Exception):
    """A run that did not end well; the message is one line."""


class TimeUp(Failure):
    """The time that the user allowed is spent; what was measured until then counts."""


def limit(seconds):
    """Raises TimeUp in the main thread after so long, wherever it waits."""
    def time_up(*_):
        raise TimeUp("no time is left: the machine is too busy for what --quick allows")
    signal.signal(signal.SIGALRM, time_up)
    signal.alarm(seconds)


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


class Train:
    """One `heddle train`. Runs with the same `cache` share what was measured; without one, a run measures anew."""

    def __init__(self, folder, job, overrides=(), cache=None):
        self.folder = folder
        self.cache = cache or folder + ".cache"
        self.command = [BINARY, "train", job, "--out", folder, "--quiet"]
        for override in overrides:
            self.command += ["--set", override]
        self.process = None
        self.log = None

    def start(self):
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        self.log = open(self.folder + ".log", "w+", encoding="utf-8", errors="replace")
        try:
            self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                            env={**os.environ, "HEDDLE_CACHE": self.cache})
        except OSError as error:
            raise Failure(f"{BINARY}: {error.strerror}; build it, or name it in HEDDLE") from error
        return self

    def failure(self):
        self.log.seek(0)
        return Failure(f"heddle train: exit code {self.process.returncode}: {last_line(self.log.read())}")

    def finish(self, timeout):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise Failure(f"heddle train: no end within {timeout} s") from error
        if self.process.returncode != 0:
            raise self.failure()
        return self

    def check_running(self):
        if self.process.poll() is not None:
            raise self.failure()

    def stop(self):
        """Ends it early; returns when it and its workers are gone."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def events(self, kind):
        found = []
        try:
            with open(os.path.join(self.folder, "events.jsonl"), encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        event = json.loads(line)
                        if event["event"] == kind:
                            found.append(event)
        except FileNotFoundError:
            pass
        return found


def wait_until(what, condition, timeout):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"not within {timeout} s: {what}")
        time.sleep(0.1)


def scrape(run):
    """The sums of the workers' metrics by name, buckets left out."""
    with open(os.path.join(run.folder, "job.json"), encoding="utf-8") as file:
        coordinator = json.load(file)["metrics"]
    with urllib.request.urlopen(f"http://{coordinator}/sd", timeout=10) as answer:
        groups = json.load(answer)
    sums = {}
    for group in groups:
        for target in group["targets"]:
            if target == coordinator:
                continue
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
                for line in answer.read().decode().splitlines():
                    if not line.startswith("#") and "_bucket" not in line:
                        name, value = line.rsplit(" ", 1)
                        name = name.split("{")[0]
                        sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def command(*arguments, timeout=300):
    """Standard output of a `heddle` command."""
    try:
        done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=timeout, check=False,
                              stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Failure(f"{BINARY}: {error.strerror}; build it, or name it in HEDDLE") from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"heddle {arguments[0]}: no end within {timeout} s") from error
    if done.returncode != 0:
        raise Failure(f"heddle {arguments[0]}: exit code {done.returncode}: {last_line(done.stderr)}")
    return done.stdout


def two_workers(folder, steps, warm):
    """A job file: the quickstart's model on two whole workers, without checkpoints. `warm`: steps of the warm-up."""
    with open(os.path.join(REPOSITORY, "configs", "quickstart.yaml"), encoding="utf-8") as file:
        text = file.read()
    text = text[:text.index("workers:")]
    text = text.replace("steps: 600", f"steps: {steps}").replace("warmup_steps: 40", f"warmup_steps: {warm}")
    path = os.path.join(folder, "two-workers.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "threads: 1\nworkers:\n  - {name: a}\n  - {name: b}\ncheckpoint: {every: 0, last: false}\n")
    return path


def rate(events, tokens):
    """Tokens a second over a run of consecutive step events."""
    return tokens * (len(events) - 1) / (events[-1]["time"] - events[0]["time"])
