"""The disk of the coordinator's store is full while a job trains on other disks: a submission is refused, training goes
on, a loss waits, the end that a signal asks for comes, and everything goes on where there is room again.
"""
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, check_same, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, WORKERS, Cluster, losses_until, write_job  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
DISK_BYTES = 8 << 20


class SmallDisk:
    """A file system of its own, which can be filled to the last byte."""

    def __init__(self, path):
        self.path = path
        self.filler = os.path.join(path, "filler")

    def __enter__(self):
        os.mkdir(self.path)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.path],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"skipped: no file system can be mounted here: {done.stderr.strip()}")
            sys.exit(77)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=False)

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self):
        os.unlink(self.filler)


def check_submission(cluster, disk, job):
    disk.fill()
    refused = heddle("submit", job, "--coordinator", cluster.listen, "--out", cluster.run.folder)
    assert refused.returncode == 1 and "full" in refused.stderr, refused
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert cluster.status()["phase"] == "idle"
    assert not os.path.exists(cluster.run.folder), "a refused job left its folder"
    disk.free()
    wait_for("the store's return", lambda: not cluster.status()["reason"])
    cluster.submit(job)


def fill(cluster, disk):
    before = len(cluster.run.events("store_stalled"))
    disk.fill()
    wait_for("a store that cannot be written", lambda: len(cluster.run.events("store_stalled")) > before)
    assert "full" in cluster.status()["reason"], cluster.status()["reason"]


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with SmallDisk(os.path.join(folder, "full-store")) as disk, Cluster(folder, "full") as cluster:
            cluster.serve()
            check_submission(cluster, disk, job)
            for name in WORKERS:
                cluster.worker(name)
            cluster.wait_step(5)

            fill(cluster, disk)
            victim = chance.choice(WORKERS)
            cluster.kill(victim)
            time.sleep(1)  # lint: allow sleep: that nothing happens is what is looked at.
            assert not cluster.run.events("resumed")
            disk.free()
            wait_for("the recovery", lambda: cluster.run.events("resumed"))
            assert [event["worker"] for event in cluster.run.events("worker_lost")] == [victim]
            assert cluster.run.events("store_works")

            fill(cluster, disk)
            # It ends though nothing can be stored: there is no room before it has.
            cluster.coordinator.send_signal(signal.SIGTERM)
            assert cluster.coordinator.wait(60) == 0, cluster.errors()
            disk.free()
            cluster.serve()
            cluster.wait_step(cluster.run.step() + 5)
        last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last), last)
        check_samples(cluster.run, last, GLOBAL_BATCH)
        print(f"{victim} lost while nothing could be stored; {last} steps")


main()
