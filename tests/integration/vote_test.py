"""A worker that dies in its vote: before the others have its record, and when it knows the norm but has not applied it.
In the first case nobody has applied the step, in the second the others may have: the loss does not notice either.
"""
import random
import signal

from harness import Scratch, check_same, check_samples, seed
from harness.text_data import prose
from harness.served import GLOBAL_BATCH, WORKERS, Cluster, undisturbed_losses, write_job

STEPS = 50


def kill_in_vote(folder, job, point, count, undisturbed):
    with Cluster(folder, point) as cluster:
        cluster.serve()
        # The fastest one: every plan has work for it.
        cluster.worker(WORKERS[0], prefix=("env", f"HEDDLE_FAIL_POINT={point}:{count}"))
        for name in WORKERS[1:]:
            cluster.worker(name)
        cluster.submit(job)
        code = cluster.workers[WORKERS[0]].wait(120)
        assert code == -signal.SIGKILL, f"{WORKERS[0]} ended with {code} before its vote number {count}"
        del cluster.workers[WORKERS[0]]
        survivors = {name: process.pid for name, process in cluster.workers.items()}
        cluster.check_alive(survivors)
        cluster.finish()
        check_same(cluster.run, undisturbed, STEPS)
        check_samples(cluster.run, STEPS, GLOBAL_BATCH)
        lost = cluster.run.events("worker_lost")
        resumed = cluster.run.events("resumed")
        print(f"{point}: killed at vote {count}, lost {[event['worker'] for event in lost]}, "
              f"resumed {[(round(event['seconds'], 2), event['steps_repeated']) for event in resumed]}", flush=True)
        assert [event["worker"] for event in lost] == [WORKERS[0]], lost


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = undisturbed_losses(folder, job)
        for point in ("vote.ready", "vote.known"):
            kill_in_vote(folder, job, point, chance.randrange(1, 12), undisturbed)


main()
