"""SIGTERM for every worker at once: they save what they hold and end with exit code 75; new ones go on at that step,
and the losses are those of the undisturbed run. `train` does the same, and goes on when it is started again.
"""
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, check_same, check_samples, get, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, WORKERS, Cluster, undisturbed_losses, write_job  # noqa: E402

STEPS = 120  # So many that no suspension comes too late.
# No checkpoint but the last one: what is gone on from is what the suspension saved.
SELDOM = "checkpoint.every=1000"
REQUEUE = 75


def check_saved(run, before):
    """The newest suspension lost nothing; returns its step."""
    event = run.events("suspended")[-1]
    assert event["reason"] == "" and event["steps_repeated"] == 0, event
    assert before <= event["step"] < STEPS, (before, event)
    assert run.step() == event["step"], (run.step(), event)
    assert run.events("checkpoint")[-1]["step"] == event["step"], run.events("checkpoint")
    return event["step"]


def check_end(cluster, undisturbed, suspensions):
    assert len(cluster.run.events("suspended")) == suspensions
    assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")
    assert cluster.run.events("recovery_source") == [], "nobody was missed"
    logged = [event["step"] for event in cluster.run.events("step")]
    assert logged == list(range(1, STEPS + 1)), f"a step was run again: {logged}"
    check_same(cluster.run, undisturbed, STEPS)
    check_samples(cluster.run, STEPS, GLOBAL_BATCH)


def suspend(cluster, chance):
    """SIGTERM for all workers, in any order; the step after which the job goes on."""
    before = cluster.run.step()
    for name in chance.sample(sorted(cluster.workers), len(cluster.workers)):
        cluster.workers[name].send_signal(signal.SIGTERM)
    for name, process in cluster.workers.items():
        code = process.wait(60)
        assert code == REQUEUE, f"worker {name}: exit code {code}: {cluster.errors()}"
    cluster.workers = {}
    step = check_saved(cluster.run, before)
    status = cluster.status()
    assert status["phase"] == "suspended" and str(step) in status["reason"], status
    text = get(cluster.run.job()["metrics"])
    count = len(cluster.run.events("suspended"))
    assert f'heddle_suspensions_total{{saved="true"}} {count}\n' in text, text
    return step


def served(folder, job, chance, undisturbed):
    steps = []
    with Cluster(folder, "served") as cluster:
        cluster.serve()
        cluster.submit(job, SELDOM)
        for names in (WORKERS, WORKERS, "xyz"):
            for name in names:
                cluster.worker(name)
            if len(steps) < 2:
                cluster.wait_step((steps[-1] if steps else 0) + chance.randrange(2, 15))
                steps.append(suspend(cluster, chance))
        cluster.finish()
        check_end(cluster, undisturbed, 2)
    return steps


def trained(folder, job, chance, undisturbed):
    run = Run(os.path.join(folder, "trained"), job, [SELDOM])
    run.start().wait_step(chance.randrange(3, 30))
    before = run.step()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(60) == REQUEUE, run.errors()[-2000:]
    step = check_saved(run, before)
    assert f"suspended after step {step}; the same command goes on there" in run.errors(), run.errors()[-2000:]
    run.start()
    wait_for("its workers", lambda: len(run.pids()) == len(WORKERS))
    run.wait_step(step + 2)
    # As a batch system does it: all processes at once.
    before = run.step()
    for pid in [*run.pids().values(), run.process.pid]:
        os.kill(pid, signal.SIGTERM)
    assert run.wait(60) == REQUEUE, run.errors()[-2000:]
    again = check_saved(run, before)
    run.start().finish()
    assert [event["step"] for event in run.events("step")] == list(range(1, STEPS + 1))
    check_same(run, undisturbed, STEPS)
    return [step, again]


def interrupted(folder, job):
    """Ctrl-C ends a run at once, as a failed one; what it had saved is gone on from."""
    run = Run(os.path.join(folder, "interrupted"), job, ["checkpoint.every=4"]).start()
    wait_for("a checkpoint", lambda: run.events("checkpoint"))
    run.process.send_signal(signal.SIGINT)
    assert run.wait(60) == 1 and "interrupted" in run.errors(), run.errors()[-2000:]
    assert run.events("suspended") == []


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = undisturbed_losses(folder, job)
        print(f"served: suspended after {served(folder, job, chance, undisturbed)}", flush=True)
        print(f"trained: suspended after {trained(folder, job, chance, undisturbed)}", flush=True)
        interrupted(folder, job)


main()
