"""Workers on two versions of libtorch make one job: it trains, a worker of either kind is killed and comes back, and
the losses are those of one worker but for rounding. The guarantee says what differs.

Usage: unlike_stacks_test.py HEDDLE OTHER: the program of a build of the same source with another libtorch.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, Scratch, check_samples, seed, wait_for  # noqa: E402
from harness.served import GLOBAL_BATCH, Cluster, losses_until, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

OTHER = os.path.abspath(sys.argv[2])
KINDS = {"a": HEDDLE, "b": HEDDLE, "c": OTHER, "d": OTHER}
SPEED = ("--emulate", "speed=0.08")
NEAR = 1e-5  # Of rounding in fp32 in some tens of steps; it was 1e-8.


def check_guarantee(cluster):
    status = cluster.status()
    assert status["guarantee"] == "per-plan" and "libtorch" in status["guarantee_reason"], status
    versions = {worker["name"]: worker["arithmetic"]["libtorch"] for worker in status["workers"]}
    assert versions["a"] == versions["b"] != versions["c"] == versions["d"], versions
    return versions


def lose_and_return(cluster, name):
    """The job goes on without the worker, and takes it back."""
    run = cluster.run
    cluster.wait_step(run.step() + 3)
    lost, plans = len(run.events("worker_lost")), len(run.events("plan"))
    cluster.kill(name)
    wait_for(f"the loss of {name}", lambda: len(run.events("worker_lost")) > lost or cluster.finished())
    without = wait_for("a plan without it", lambda: run.events("plan")[plans:])[0]["plan"]
    assert name not in without["workers"], without
    cluster.wait_step(run.step() + 3)
    plans = len(run.events("plan"))
    cluster.worker(name, *SPEED, program=KINDS[name])
    wait_for(f"a plan with {name}",
             lambda: any(name in event["plan"]["workers"] for event in run.events("plan")[plans:]))
    cluster.wait_step(run.step() + 3)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), 100_000)
        with Cluster(folder, "stacks") as cluster:
            cluster.serve()
            cluster.submit(job)
            for name, program in KINDS.items():
                cluster.worker(name, *SPEED, program=program)
            wait_for("a plan with all", lambda: any(len(event["plan"]["workers"]) == len(KINDS)
                                                    for event in cluster.run.events("plan")))
            cluster.wait_step(3)
            print(check_guarantee(cluster), flush=True)
            for kind in (OTHER, HEDDLE):
                lose_and_return(cluster, chance.choice([name for name in KINDS if KINDS[name] == kind]))
            check_guarantee(cluster)
            last = cluster.run.step()
        losses, expected = cluster.run.losses(), losses_until(folder, job, last)
        worst = max(abs(losses[step] - expected[step]) / expected[step] for step in range(1, last + 1))
        assert worst <= NEAR, (worst, losses, expected)
        check_samples(cluster.run, cluster.run.step(), GLOBAL_BATCH)
        print(f"{last} steps, worst difference {worst:.1e}", flush=True)


main()
