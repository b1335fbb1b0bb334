"""A coordinator that comes back adopts its workers before it reads any checkpoint, and workers that are started between
two jobs wait for the next one.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, check_same, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import PATIENT, WORKERS, Cluster, undisturbed_losses, write_job  # noqa: E402

STEPS = 60


def damage(folder, chance):
    """One byte in the middle of every file of the newest checkpoint."""
    root = os.path.join(folder, "checkpoints")
    newest = os.path.join(root, max(name for name in os.listdir(root) if name.startswith("step-")))
    for name in os.listdir(newest):
        if name.endswith(".h5"):
            with open(os.path.join(newest, name), "r+b") as file:
                file.seek(os.path.getsize(file.name) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ (1 << chance.randrange(8))]))


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = undisturbed_losses(folder, job)
        with Cluster(folder, "served") as cluster:
            cluster.serve()
            cluster.submit(job, PATIENT)
            for name in WORKERS:
                cluster.worker(name)
            wait_for("a checkpoint", lambda: cluster.run.events("checkpoint"))
            cluster.coordinator.kill()
            cluster.coordinator.wait(60)
            damage(cluster.run.folder, chance)
            cluster.serve()
            cluster.finish()
            assert not cluster.run.events("warning"), "the newest checkpoint was read before the workers were adopted"
            assert not cluster.run.events("worker_lost"), cluster.run.events("worker_lost")
            check_same(cluster.run, undisturbed, STEPS)

            # The coordinator holds no job now.
            cluster.workers = {}
            for name in WORKERS:
                cluster.worker(name)
            waiting = "the next one is waited for"
            wait_for("every worker's word", lambda: cluster.errors().count(waiting) >= len(WORKERS))
            cluster.run = Run(os.path.join(folder, "next"))
            cluster.submit(job, PATIENT)
            cluster.finish()
            check_same(cluster.run, undisturbed, STEPS)


main()
