"""A worker that hangs in its vote, with heartbeats that go on: the chains of waits of the others end at it, so that it
is given up alone, before any call of theirs has met its deadline. The others keep their processes, and the loss does
not notice.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, Scratch, check_same, heddle, seed  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import WORKERS, Cluster, undisturbed_losses, write_job  # noqa: E402

STEPS = 40
# By `hang_timeout`, or ten steps where those take longer; and by the time in which the others' calls would
# end.
LEAST, MOST = 15, 600


def check_reason(reason, hung):
    assert f"waits for {hung}, which did nothing for" in reason, reason
    seconds = float(reason.split("did nothing for ")[1].split()[0])
    assert LEAST <= seconds < MOST, reason


def main():
    chance = random.Random(seed())
    hung = chance.choice(WORKERS)
    count = chance.randrange(2, 12)
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = undisturbed_losses(folder, job)
        with Cluster(folder, "hang") as cluster:
            cluster.serve()
            for name in WORKERS:
                prefix = ("env", f"HEDDLE_FAIL_POINT=vote.ready:{count}:hang") if name == hung else ()
                cluster.worker(name, prefix=prefix)
            cluster.submit(job, f"elastic.operation_timeout={MOST}s")
            survivors = {name: process.pid for name, process in cluster.workers.items() if name != hung}
            cluster.wait_step(count - 1)
            cluster.wait_step(count + 5, 2 * PATIENCE)
            cluster.check_alive(survivors)
            cluster.kill(hung)
            cluster.finish()
            check_same(cluster.run, undisturbed, STEPS)
            [lost] = cluster.run.events("worker_lost")
            print(f"{hung} hung in its vote number {count}: {lost['reason']}", flush=True)
            assert lost["worker"] == hung, lost
            check_reason(lost["reason"], hung)
            [decision] = [event for event in cluster.run.events("decision") if event["cause"] == "loss"]
            explained = heddle("explain", str(decision["generation"]), "--run", cluster.run.folder)
            assert explained.returncode == 0, explained.stderr
            assert f"waits for {hung}, which did nothing for" in explained.stdout, explained.stdout


main()
