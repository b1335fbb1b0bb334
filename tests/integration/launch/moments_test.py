"""SIGTERM for all processes of a run at any moment, for one, two and four workers and without checkpoints on the way:
what was trained is saved, every process ends with exit code 75, and the same command goes on there. A second one ends
every process, whatever the first one has begun.

Usage: moments_test.py HEDDLE [MOMENTS]
"""
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import write_job  # noqa: E402
from tiers import scaled  # noqa: E402

STEPS = 1_000_000
COUNTS = (1, 2, 4)
MOMENTS = int(sys.argv[2]) if len(sys.argv) > 2 else scaled(1, 1, 8)
REQUEUE = 75
# Until every process of a run is gone, on a machine that has much else to do. The figures are printed.
GONE = 60


def begin(folder, job, name, count):
    workers = ", ".join(f"{{name: {letter}}}" for letter in "abcd"[:count])
    changes = [f"steps={STEPS}", "checkpoint.every=0", f"workers=[{workers}]"]
    return Run(os.path.join(folder, name), job, changes).start()


def living(run):
    """Processes that name the run's folder in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(run.folder.encode()) for word in words) and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def signal_all(run, chance):
    """In any order, as a batch system does it."""
    pids = living(run)
    for pid in chance.sample(pids, len(pids)):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # Whoever was told first may have ended it.


def wait_moment(run, count, chance):
    """Some moment of a run that trains."""
    wait_for("its workers", lambda: len(run.pids()) == count)
    run.wait_step(1)
    time.sleep(2 * chance.random())


def check_gone(run):
    wait_for("the end of every process", lambda: not living(run), GONE)


def signalled(folder, job, count, number, chance):
    run = begin(folder, job, f"once-{count}-{number}", count)
    wait_moment(run, count, chance)
    before = run.step()
    begun = time.monotonic()
    signal_all(run, chance)
    assert run.wait(GONE) == REQUEUE, run.errors()[-2000:]
    check_gone(run)
    seconds = time.monotonic() - begun
    [suspended] = run.events("suspended")
    assert suspended["reason"] == "" and suspended["steps_repeated"] == 0, suspended
    assert before <= suspended["step"] == run.step() == run.events("checkpoint")[-1]["step"], (before, suspended)
    return run, seconds


def signalled_twice(folder, job, count, number, chance):
    run = begin(folder, job, f"twice-{count}-{number}", count)
    wait_moment(run, count, chance)
    signal_all(run, chance)
    time.sleep(chance.random() ** 3)  # Mostly before the first one is done.
    begun = time.monotonic()
    signal_all(run, chance)
    assert run.wait(GONE) in (1, REQUEUE), run.errors()[-2000:]
    check_gone(run)
    return run, time.monotonic() - begun


def goes_on(run):
    """From what was saved, or from the beginning."""
    saved = max((event["step"] for event in run.events("checkpoint")), default=0)
    seen = len(run.events("step"))
    run.start()
    wait_for("a step", lambda: len(run.events("step")) > seen or run.process.poll() is not None)
    assert run.events("step")[seen]["step"] == saved + 1, (saved, run.events("step")[seen], run.errors()[-2000:])
    run.process.send_signal(signal.SIGINT)
    run.wait(GONE)
    check_gone(run)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        for count in COUNTS:
            slowest = {signalled: 0, signalled_twice: 0}
            for number in range(MOMENTS):
                for scenario in slowest:
                    run, seconds = scenario(folder, job, count, number, chance)
                    slowest[scenario] = max(slowest[scenario], seconds)
                    if number == 0:
                        goes_on(run)
            print(f"{count} workers, {MOMENTS} moments: no process left after {slowest[signalled]:.1f} s at most, "
                  f"and {slowest[signalled_twice]:.1f} s after a second signal", flush=True)


main()
