"""Runs test entries against one planted fault at a time."""
import concurrent.futures
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

MEMORY_BYTES = 6 << 30  # A fault may allocate without bound.
FILE_BYTES = 4 << 30


class Entry:
    """One entry of ctest whose programs are replaced by their mutated copies."""

    def __init__(self, described, programs):
        self.name = described["name"]
        properties = {p["name"]: p["value"] for p in described.get("properties", [])}
        self.labels = properties.get("LABELS", [])
        self.folder = properties["WORKING_DIRECTORY"]
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []) if "=" in v)
        self.processors = int(properties.get("PROCESSORS", 1))
        self.most_seconds = float(properties.get("TIMEOUT", 600))
        self.command = [programs.get(word, word) for word in described.get("command", [])]
        self.planted = any(word in programs for word in described.get("command", []))
        self.seconds = 0.0
        self.reached = frozenset()

    def run(self, extra, limit):
        """Returns "green", "red" or "late", the seconds that it took and the end of its output."""
        scratch = tempfile.mkdtemp(prefix="heddle-mutant-", dir=self.environment.get("TMPDIR"))
        os.chmod(scratch, 0o755)  # Tests access their files as other users, too.
        environment = {**os.environ, **self.environment, **extra, "TMPDIR": scratch, "GTEST_FAIL_FAST": "1"}
        started = time.monotonic()
        # The output goes to a file, because a child that outlives the program would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(self.command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                       preexec_fn=limits)
            try:
                outcome = "green" if process.wait(limit) == 0 else "red"
            except subprocess.TimeoutExpired:
                outcome = "late"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            seconds = time.monotonic() - started
            output.seek(max(0, output.seek(0, os.SEEK_END) - 3000))
            said = output.read().decode(errors="replace")
        shutil.rmtree(scratch, ignore_errors=True)
        return outcome, seconds, said


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def entries(folder, programs):
    """The entries of a build folder that run a planted program."""
    command = ["ctest", "--test-dir", str(folder), "--show-only=json-v1"]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [Entry(t, programs) for t in json.loads(out.stdout)["tests"]]
    return [e for e in found if e.planted]


def cover(found, work, ids, jobs, say):
    """Runs every entry once without a fault: its seconds, and the mutants that it reaches; without failing ones."""
    def one(entry):
        with tempfile.NamedTemporaryFile(dir=work) as seen:
            seen.truncate(1 << 20)
            outcome, entry.seconds, said = entry.run({"HEDDLE_MUTANT_COVERAGE": seen.name}, entry.most_seconds)
            seen.seek(0)
            reached = seen.read()
        entry.reached = frozenset(i for i in ids if reached[i])
        if outcome != "green":
            say(f"left out: {entry.name} is {outcome} without a fault: {said[-400:]}")
        return outcome == "green"

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        green = list(pool.map(one, found))
    return sorted((e for e, ok in zip(found, green) if ok), key=lambda e: e.seconds)


def judge(mutant, found):
    """Sets the mutant's verdict: caught (and by what), survived, or not covered."""
    mutant["verdict"], mutant["seconds"] = "not covered", 0.0
    for entry in found:
        if mutant["id"] not in entry.reached:
            continue
        outcome, seconds, _ = entry.run({"HEDDLE_MUTANT": str(mutant["id"])}, 3 * entry.seconds + 5)
        mutant["seconds"] += seconds
        mutant["verdict"] = "survived"
        if outcome != "green":
            mutant["verdict"], mutant["by"], mutant["how"] = "caught", entry.name, outcome
            return
