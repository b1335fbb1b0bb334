"""Members of groups are killed at any moment and between a step's vote and its update, drained and started again: no
step is lost, the state comes from the workers exactly when the survivors have all of it, and a change moves no more
than what the new plan's workers lack. What workers have is computed by boxes.py, which shares nothing with the program.
"""
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, Scratch, boxes, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.served import GLOBAL_BATCH, Cluster, undisturbed_losses, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402
from tiers import scaled  # noqa: E402

STEPS = 60
NAMES = "abcdef"
RUNS = scaled(1, 2, 30)
FAULTS = 4  # Of a run.
GROUPS = ("determinism=relaxed", "parallel.tensor=2", "checkpoint.every=0", "checkpoint.replicas.every=1",
          "elastic.drift=observe", "workers=[{name: a}, {name: b}, {name: c}]")
SPEED = ("--emulate", "speed=0.08")


class Losses:
    """One run with its faults."""

    def __init__(self, cluster, chance):
        self.cluster, self.run, self.chance = cluster, cluster.run, chance
        self.killed = 0

    def start(self, name):
        """Every other worker is going to be killed in a vote: before the others have its record, or when it knows the
        norm and has not applied it."""
        prefix = ()
        if self.chance.random() < 0.5:
            point = self.chance.choice(("vote.ready", "vote.known"))
            prefix = ("env", f"HEDDLE_FAIL_POINT={point}:{self.chance.randrange(3, 20)}")
        self.cluster.worker(name, *SPEED, prefix=prefix)

    def replace_dead(self):
        for name, process in list(self.cluster.workers.items()):
            code = process.poll()
            if code is not None and not self.cluster.finished():
                assert code == -signal.SIGKILL, f"{name}: exit code {code}: {self.cluster.errors()}"
                del self.cluster.workers[name]
                self.killed += 1
                self.start(name)

    def fault(self):
        plan = self.run.events("plan")[-1]["plan"]
        alive = [name for name in plan["workers"] if self.cluster.workers[name].poll() is None]
        if not alive:
            return
        name = self.chance.choice(alive)
        if self.chance.random() < 0.7:
            self.cluster.kill(name)
            self.killed += 1
        else:
            drained = heddle("drain", name, "--coordinator", self.cluster.listen)
            process = self.cluster.workers[name]
            if drained.returncode == 0:
                wait_for(f"{name} to leave", lambda: process.poll() is not None or self.cluster.finished())
            if process.poll() is None:
                return
            if process.returncode == -signal.SIGKILL:
                self.killed += 1
            del self.cluster.workers[name]
        self.start(name)

    def go(self):
        for name in NAMES:
            self.start(name)
        following = self.chance.randrange(3, 10)
        end = time.monotonic() + 5 * PATIENCE
        while not self.cluster.finished():
            assert time.monotonic() < end, f"step {self.run.step()} of {STEPS}: {self.cluster.errors()}"
            time.sleep(0.02)
            self.replace_dead()
            if self.run.step() >= following and following < STEPS - 5:
                self.fault()
                following = self.run.step() + self.chance.randrange(5, STEPS // FAULTS)


def check_recoveries(run):
    """(recoveries, of them by the workers' tensors). Between two plans some of the first are lost; then a source is
    chosen."""
    plan, lost, several, recoveries, live = None, set(), False, 0, 0
    for event in run.events():
        kind = event["event"]
        if kind == "worker_lost":
            lost.add(event["worker"])
        elif kind == "recovery_source":
            whole = boxes.covered(plan, set(plan["workers"]) - lost)
            offered = {candidate["source"] for candidate in event["candidates"]}
            assert ("live" in offered) == whole, (sorted(lost), plan, event)
            recoveries += 1
            several = len(lost) > 1  # Then the only replica of what one of them had may be lost, too.
            live += event["chosen"] == "live"
        elif kind == "state_moved":
            moved = event
        elif kind == "plan":
            if plan is not None and set(moved["sources"]) <= {"memory"}:
                least = boxes.least_moved(plan, event["plan"], set(plan["workers"]) - lost)
                assert least <= moved["bytes"] <= 1.05 * least, (least, moved, plan, event["plan"])
            plan, lost = event["plan"], set()
        elif kind == "resumed":
            assert event["steps_repeated"] <= 2 or several, event
    return recoveries, live


def main():
    chance = random.Random(seed())
    killed = recoveries = live = 0
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        expected = undisturbed_losses(folder, job)
        for number in range(RUNS):
            divided = ["parallel.optimizer=divided"] if number % 2 else []
            with Cluster(folder, f"run-{number}") as cluster:
                cluster.serve()
                cluster.submit(job, *GROUPS, *divided)
                losses = Losses(cluster, chance)
                losses.go()
            run = cluster.run
            check_samples(run, STEPS, GLOBAL_BATCH)
            worst = max(abs(run.losses()[step] - expected[step]) / expected[step] for step in range(1, STEPS + 1))
            assert worst <= 1e-3, worst
            found = check_recoveries(run)
            killed, recoveries, live = killed + losses.killed, recoveries + found[0], live + found[1]
            print(f"run {number}: {losses.killed} killed, {found[0]} recoveries, {found[1]} live, losses {worst:.1e} "
                  f"away, repeated {[event['steps_repeated'] for event in run.events('resumed')]}", flush=True)
    print(f"{RUNS} runs, {killed} killed, {recoveries} recoveries compared, {live} of them live", flush=True)


main()
