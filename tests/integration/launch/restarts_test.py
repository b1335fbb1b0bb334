"""`elastic.restart`: a local worker that is killed is started again and takes part, and so is one that is only stopped:
it is ended in favour of its successor. The losses are those of the undisturbed run.
"""
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import SMOKE, Run, Scratch, alive, check_same, check_samples, seed, wait_for  # noqa: E402
from harness.served import losses_until  # noqa: E402

STEPS = 100_000  # It does not end by itself: who is lost twice in a row is held off for seconds.
REQUEUE = 75
GLOBAL_BATCH = 24
SPEEDS = {"a": 0.30, "b": 0.25, "c": 0.20}
SLOW = f"workers=[{', '.join(f'{{name: {name}, emulate: {{speed: {speed}}}}}' for name, speed in SPEEDS.items())}]"


def comes_back(run, worker, fault):
    """The fault ends the worker; returns when another process of its name trains."""
    before = run.pids()[worker]
    os.kill(before, fault)
    generation = run.events("step")[-1]["generation"]
    wait_for(f"another {worker}", lambda: run.pids().get(worker, before) != before)
    wait_for("it to train", lambda: worker in run.events("plan")[-1]["plan"]["workers"] and
             run.events("plan")[-1]["generation"] > generation + 1 and
             run.events("step")[-1]["generation"] >= run.events("plan")[-1]["generation"])
    assert not alive(before), f"{worker}'s first process still runs"
    return run.step()


def comes_back_after_a_failed_start(run, worker):
    """A worker that cannot be started, since a folder stands where its log is to be, is tried again."""
    log = os.path.join(run.folder, "logs", worker + ".log")
    os.rename(log, log + ".before")
    os.mkdir(log)
    before = run.pids()[worker]
    os.kill(before, signal.SIGKILL)
    wait_for("the failed start", lambda: f"worker {worker} could not be started" in run.errors())
    os.rmdir(log)
    wait_for(f"another {worker}", lambda: run.pids().get(worker, before) != before)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        run = Run(os.path.join(folder, "restarted"), overrides=[f"steps={STEPS}", SLOW, "elastic.restart=true"]).start()
        run.wait_step(chance.randrange(2, 10))
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            worker = chance.choice("abc")
            print(f"{worker} came back from {fault.name}, step {comes_back(run, worker, fault)}", flush=True)
        comes_back_after_a_failed_start(run, chance.choice("abc"))
        run.wait_step(run.step() + 5)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == REQUEUE, run.errors()[-2000:]
        last = run.step()
        check_samples(run, last, GLOBAL_BATCH)
        check_same(run, losses_until(folder, SMOKE, last, f"steps={STEPS}"), last)


main()
