"""A worker is drained, and another one told to end by its machine: both are taken back and stay, with their processes.
What is too late, or was never asked for, is refused in one line. A later notice counts. No step is lost.
"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, check_same, check_samples, heddle, wait_for  # noqa: E402
from harness.served import GLOBAL_BATCH, Cluster, losses_until, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

STEPS = 100_000  # None of it ends by itself.


def drain(cluster, *words, code=0):
    done = heddle("drain", *words, "--coordinator", cluster.listen)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    assert code == 0 or len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stdout.split() if code == 0 else done.stderr


def standing(cluster, name):
    [worker] = [worker for worker in cluster.status()["workers"] if worker["name"] == name]
    return worker["standing"]


def planned(cluster):
    return [worker for worker in "abc" if worker in cluster.run.events("plan")[-1]["plan"]["workers"]]


def main():
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Cluster(folder, "stay") as cluster:
            cluster.serve()
            for name in "abc":
                cluster.worker(name)
            cluster.submit(job)
            cluster.wait_step(4)
            pids = cluster.run.pids()
            assert "does not leave" in drain(cluster, "b", "--cancel", code=2)
            assert drain(cluster, "b") == ["b"]
            assert drain(cluster, "b", "--cancel") == ["b"]
            os.kill(pids["c"], signal.SIGTERM)
            wait_for("c to be draining", lambda: standing(cluster, "c") == "draining")
            assert drain(cluster, "c", "--cancel") == ["c"]
            cluster.wait_step(cluster.run.step() + 8)
            wait_for("a plan with all", lambda: planned(cluster) == list("abc"))
            cluster.check_alive(pids)
            assert cluster.run.events("worker_left") == []
            assert [event["worker"] for event in cluster.run.events("drain_cancelled")] == ["b", "c"]
            # It counts as the first one.
            os.kill(pids["c"], signal.SIGTERM)
            wait_for("c has left", lambda: cluster.run.events("worker_left"))
            assert cluster.workers["c"].wait(60) == 0
            assert "who has left does not stay" in drain(cluster, "c", "--cancel", code=2)
            cluster.wait_step(cluster.run.step() + 5)
            assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")
            assert not any(event["steps_repeated"] for event in cluster.run.events("resumed"))
        last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last), last)
        check_samples(cluster.run, last, GLOBAL_BATCH)


main()
