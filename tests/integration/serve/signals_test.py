"""Signals that reach a worker without a partner: alone in its job it saves and ends with exit code 75; without a
coordinator it ends when its notice is over; before it has reached one it has done nothing, and says so. A second signal
ends it whatever it does.
"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import ALONE, Cluster, write_job  # noqa: E402

STEPS = 100_000_000
SELDOM = "checkpoint.every=0"
REQUEUE = 75
# Far more than a second, and less than what joining a thread that computes on would take.
AT_ONCE = 20


def begin(cluster, job, *overrides):
    cluster.serve()
    cluster.submit(job, ALONE, SELDOM, *overrides)
    cluster.worker("a")
    cluster.wait_step(3)
    return cluster.workers["a"]


def delivered(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        pending = [line for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    return all(int(line.split()[1], 16) == 0 for line in pending)


def terminate(process):
    process.send_signal(signal.SIGTERM)
    wait_for("the signal's delivery", lambda: process.poll() is not None or delivered(process.pid))


def alone(folder, job):
    with Cluster(folder, "alone") as cluster:
        worker = begin(cluster, job)
        terminate(worker)
        assert worker.wait(60) == REQUEUE, cluster.errors()
        [suspended] = cluster.run.events("suspended")
        assert suspended["reason"] == "" and suspended["steps_repeated"] == 0, suspended
        assert cluster.run.events("checkpoint")[-1]["step"] == suspended["step"] >= 3, cluster.run.events("checkpoint")


def second_signal(folder, job):
    """The coordinator stands still, so that the first one has no answer."""
    with Cluster(folder, "second") as cluster:
        worker = begin(cluster, job)
        cluster.coordinator.send_signal(signal.SIGSTOP)
        terminate(worker)
        assert worker.poll() is None, cluster.errors()
        terminate(worker)
        assert worker.wait(AT_ONCE) == 1, cluster.errors()
        assert "second signal" in cluster.errors(), cluster.errors()


def without_coordinator(folder, job):
    with Cluster(folder, "gone") as cluster:
        worker = begin(cluster, job, "elastic.notice=2s")
        cluster.coordinator.kill()
        cluster.coordinator.wait(60)
        terminate(worker)
        assert worker.wait(60) == REQUEUE, cluster.errors()
        assert "no coordinator lets it go" in cluster.errors(), cluster.errors()


def before_it_joined(folder):
    with Cluster(folder, "nobody", listen="127.0.0.1:1") as cluster:
        cluster.worker("a")
        worker = cluster.workers["a"]
        wait_for("what it waits for", lambda: "waiting for the coordinator 127.0.0.1:1" in cluster.errors(), AT_ONCE)
        terminate(worker)
        assert worker.wait(60) == REQUEUE, cluster.errors()


def main():
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        alone(folder, job)
        second_signal(folder, job)
        without_coordinator(folder, job)
        before_it_joined(folder)


main()
