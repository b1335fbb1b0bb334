"""Every call by which the coordinator changes its store or its job's files meets what storage does: no room, an error,
a file system that is read-only, a call that takes long, a locked database. What was acknowledged is there afterwards;
training can be read and goes on, or the coordinator ends with a reason; no step's line is missing.

Two parts. Submissions: the first, second … call of each kind that `submit` makes. Training: a call at random, while
workers come and go, of a coordinator that starts or has started. HEDDLE_STORE_ROUNDS says how many rounds of training.
Usage: store_calls_test.py HEDDLE STORAGE_FAULTS_LIBRARY
"""
import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, Scratch, check_same, check_samples, heddle, seed, trained, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, WORKERS, Cluster, losses_until, write_job  # noqa: E402
from tiers import sample, scaled  # noqa: E402

LIBRARY = os.path.abspath(sys.argv[2])
KINDS = {"store": ("open", "write", "pwrite", "ftruncate", "fsync"),
         "run": ("open", "write", "fsync", "rename", "mkdir")}
# Those that training makes.
IN_TRAINING = {"store": ("pwrite", "fsync", "open"), "run": ("write", "fsync", "open", "rename")}
ERRORS = {"ENOSPC": "No space left", "EIO": "nput/output error", "EROFS": "ead-only file system"}
STEPS = 100_000  # None of it ends by itself.
LONG = int(os.environ.get("HEDDLE_STORE_ROUNDS", "0"))
WATCHED, SLOW = 15, {"slow": 10, "stuck": 60}  # Seconds in which a fault may be met, and that a call takes.
MOST_CALLS = 60  # Of one kind, by one coordinator in one round.


class FaultyCluster(Cluster):
    """Whose next coordinator meets the faults that were set."""

    def __init__(self, folder, name):
        super().__init__(folder, name)
        self.switch = os.path.join(folder, name + ".switch")
        self.fired = os.path.join(folder, name + ".fired")
        self.faults = None
        self.metrics = set()  # Addresses of all workers that there were.

    def set_faults(self, below, faults, at_start):
        """Of files below `below`; the calls count at once, or when `break_now` says so."""
        for path in (self.switch, self.fired):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self.faults = (below, faults)
        if at_start:
            self.break_now()

    def break_now(self):
        with open(self.switch, "w", encoding="utf-8"):
            pass

    def repair(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.switch)

    def met(self):
        """Whether the fault has happened."""
        return os.path.exists(self.fired)

    def start(self, *command):
        if command[1] == "serve" and self.faults:
            below, faults = self.faults
            command = ("env", f"LD_PRELOAD={LIBRARY}", f"HEDDLE_STORAGE_FOLDER={below}",
                       f"HEDDLE_STORAGE_FAULTS={faults}",
                       f"HEDDLE_STORAGE_SWITCH={self.switch}", f"HEDDLE_STORAGE_FIRED={self.fired}", *command)
        return super().start(*command)

    def try_to_serve(self):
        """Whether the coordinator serves; it may end instead, with one reason."""
        said = os.path.getsize(self.log_path)
        try:
            self.serve()
            return True
        except AssertionError:
            if self.coordinator.poll() is None:
                raise
        self.check_reason(said)
        return False

    def said_since(self, position):
        with open(self.log_path, "rb") as file:
            file.seek(position)
            return file.read().decode(errors="replace")

    def check_reason(self, said):
        text = self.said_since(said)
        assert self.coordinator.returncode not in (0, None) and self.coordinator.returncode > 0, \
            (self.coordinator.returncode, text)
        reasons = [*ERRORS.values(), "full", "locked", "readonly", "cannot be", "disk I/O error", "unable to open"]
        assert any(reason in text for reason in reasons), text

    def stop_coordinator(self):
        if self.coordinator.poll() is None:
            self.coordinator.kill()
        self.coordinator.wait(60)

    def serve_well(self):
        self.repair()
        self.faults = None
        self.serve()


def submission(folder, job, name, below, faults):
    """Whether the fault happened. What was acknowledged is there when the coordinator was killed; what was refused is
    not, and can be submitted when there is room again."""
    with FaultyCluster(folder, name) as cluster:
        cluster.set_faults(cluster.store if below == "store" else cluster.run.folder, faults, at_start=False)
        cluster.serve()
        cluster.break_now()
        done = heddle("submit", job, "--coordinator", cluster.listen, "--out", cluster.run.folder)
        if not cluster.met():
            assert done.returncode == 0, done
            return False
        where = f"{below} {faults}: {done}"
        assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, where
        if done.returncode == 0:
            cluster.stop_coordinator()
            cluster.serve_well()
            assert cluster.status()["phase"] != "idle", f"what was acknowledged is lost: {where}"
            return True
        assert done.stderr.count("\n") == 1, where
        cluster.repair()
        if cluster.coordinator.poll() is None:
            wait_for(f"the store's return: {where}", lambda: not cluster.status()["reason"])
            assert cluster.status()["phase"] == "idle", f"a refused job is there: {where}"
        else:
            cluster.serve_well()
        wait_for(f"a submission that is taken: {where}", lambda: heddle(
            "submit", job, "--coordinator", cluster.listen, "--out", cluster.run.folder).returncode == 0)
        return True


def submissions(folder, job, chance):
    """Each of the calls, each with one of the errors; in `full` with all of them."""
    number = met = 0
    for below, kinds in KINDS.items():
        for kind in sample(kinds, chance, 0, 2):
            call = 1
            while call <= MOST_CALLS:
                fired = False
                for error in sample(list(ERRORS), chance, 0, 1):
                    number += 1
                    again = "+" if chance.random() < 0.5 else ""
                    fired = submission(folder, job, f"s{number}", below, f"{kind}:{call}{again}:{error}") or fired
                met += fired
                if not fired:
                    break
                call += 1
    print(f"submissions: {met} calls met a fault in {number} tries", flush=True)


def check_status(cluster):
    """Whether the coordinator is there; then it answers."""
    done = heddle("status", "--coordinator", cluster.listen, "--json")
    if cluster.coordinator.poll() is not None:
        return False
    assert done.returncode == 0, f"status is not answered: {done} {cluster.errors()}"
    cluster.metrics.update(worker["metrics_address"] for worker in json.loads(done.stdout)["workers"])
    return True


def change_something(cluster, chance):
    """What makes a coordinator store more than steps: a worker is killed and another one comes."""
    name = chance.choice(WORKERS)
    cluster.kill(name)
    cluster.worker(name)


def watch(cluster, said, seconds):
    """What the fault did: the coordinator has ended, or steps go on."""
    until, since = time.monotonic() + seconds, None

    def done():
        nonlocal since
        if not check_status(cluster):
            cluster.check_reason(said)
            return "ended"
        if cluster.met():
            now = trained(cluster.metrics)
            since = now if since is None else since
            return "goes on" if now >= since + 3 else None
        return "not met" if time.monotonic() > until else None

    return wait_for("steps since the fault, or the coordinator's end", done, seconds + PATIENCE)


def round_of_training(cluster, chance, fault=None):
    """`fault`: (folder, kind, what) of one that is not drawn."""
    drawn = chance.choice(list(IN_TRAINING))
    whats = [*ERRORS, "stuck" if LONG else "slow"]
    below, kind, what = fault or (drawn, chance.choice(IN_TRAINING[drawn]), chance.choice(whats))
    call = chance.choice([1, 2, 3, 5, 8])
    again = "+" if chance.random() < 0.5 and what in ERRORS else ""
    at_start = chance.random() < 0.3
    faults = f"{kind}:{call}{again}:{what}"
    busy = fault is None and chance.random() < 0.1
    print(f"{below}, {faults}, from its {'start' if at_start else 'work'} on: " if not busy else "locked database: ",
          end="", flush=True)
    cluster.stop_coordinator()
    said = os.path.getsize(cluster.log_path)
    if busy:
        done = locked_database(cluster, chance)
    else:
        cluster.set_faults(cluster.store if below == "store" else cluster.run.folder, faults, at_start)
        done = "did not start"
        if cluster.try_to_serve():
            cluster.break_now()
            if not again:  # Else the loss of a worker waits to be stored, and the others for it.
                change_something(cluster, chance)
            done = watch(cluster, said, WATCHED + SLOW.get(what, 0))
    if chance.random() < 0.5 and cluster.coordinator.poll() is None:
        cluster.repair()
        if done == "goes on":
            wait_for("the store's return", lambda: not cluster.status()["reason"])
        cluster.coordinator.send_signal(signal.SIGTERM)
        cluster.coordinator.wait(60)
    cluster.stop_coordinator()
    cluster.serve_well()
    step = cluster.run.step()
    cluster.wait_step(step + 3)
    restart_dead_workers(cluster)
    print(done, flush=True)


def locked_database(cluster, chance):
    """Another process holds the database while the coordinator starts."""
    database = sqlite3.connect(os.path.join(cluster.store, "coordinator.sqlite"), isolation_level=None)
    with contextlib.closing(database):
        database.execute("BEGIN IMMEDIATE")
        served = cluster.try_to_serve()
        if served:
            change_something(cluster, chance)
            time.sleep(chance.uniform(0.5, 5))  # For so long it is locked.
            check_status(cluster)
        database.execute("ROLLBACK")
    return "goes on" if served else "did not start"


def restart_dead_workers(cluster):
    """Those whose place another one took meanwhile, and what a coordinator that ended told to end."""
    for name, process in list(cluster.workers.items()):
        if process.poll() is not None:
            cluster.worker(name)


def training(folder, job, chance):
    with FaultyCluster(folder, "training") as cluster:
        cluster.serve()
        cluster.submit(job)
        for name in WORKERS:
            cluster.worker(name)
        cluster.wait_step(3)
        round_of_training(cluster, chance, ("run", "write", "slow"))
        for _ in range(LONG or scaled(0, 3, 10)):
            round_of_training(cluster, chance)
    last = cluster.run.step()
    steps = {event["step"] for event in cluster.run.events("step")}
    assert steps == set(range(1, last + 1)), f"missing: {set(range(1, last + 1)) - steps}"
    generations = [event["generation"] for event in cluster.run.events("plan")]
    assert generations == sorted(set(generations)), f"a generation was used twice: {generations}"
    check_same(cluster.run, losses_until(folder, job, last), last)
    check_samples(cluster.run, last, GLOBAL_BATCH)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        submissions(folder, job, chance)
        training(folder, job, chance)


main()
