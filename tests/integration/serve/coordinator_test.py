"""The persistent coordinator: `serve`, three `worker`s, `submit`, `status`; kill -9 of the coordinator while they
train, and a worker that is asked to leave. The workers keep their processes and the losses are those of the
undisturbed run.
"""
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, Run, Scratch, check_same, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, PATIENT, WORKERS, Cluster, losses_until, write_job  # noqa: E402

STEPS = 100_000  # None of it ends by itself.


def check_status(cluster, pids):
    status = cluster.status()
    assert status["phase"] == "training", status["phase"]
    assert int(status["step"]) >= 5 and int(status["total_steps"]) == STEPS, status
    assert {worker["name"]: int(worker["pid"]) for worker in status["workers"]} == pids, status["workers"]


def check_second_job_is_refused(cluster, job, folder):
    other = os.path.join(folder, "refused")
    refused = heddle("submit", job, "--coordinator", cluster.listen, "--out", other)
    assert refused.returncode == 2 and "a job is there already" in refused.stderr, refused
    assert not os.path.exists(other), "a refused job opened its folder"


def check_second_of_a_name_is_refused(cluster):
    """What a second launch does whose workers have the names of the first one's: it asks, says why, changes nothing."""
    pids = cluster.run.pids()
    second = cluster.start(HEDDLE, "worker", "--coordinator", cluster.listen, "--name", WORKERS[0])
    wait_for("the reason in its log", lambda: f"a worker named {WORKERS[0]} is connected" in cluster.errors())
    assert second.poll() is None and cluster.run.pids() == pids, cluster.errors()
    second.kill()
    second.wait(60)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Cluster(folder, "served") as cluster:
            cluster.serve()
            assert cluster.status()["phase"] == "idle"
            for name in WORKERS:
                cluster.worker(name)
            # On a busy machine a worker may drift just when the status is read.
            cluster.submit(job, PATIENT, "elastic.drift=observe")
            cluster.wait_step(chance.randrange(5, 20))
            pids = cluster.run.pids()
            assert pids == {name: process.pid for name, process in cluster.workers.items()}, pids
            check_status(cluster, pids)
            check_second_job_is_refused(cluster, job, folder)
            check_second_of_a_name_is_refused(cluster)

            before = cluster.run.step()
            cluster.coordinator.kill()
            cluster.coordinator.wait(60)
            cluster.serve()
            cluster.wait_step(before + 8)
            cluster.check_alive(pids)
            wait_for("the same workers in the list", lambda: cluster.run.pids() == pids)
            assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")

            leaver = chance.choice(WORKERS)
            cluster.workers[leaver].send_signal(signal.SIGTERM)
            assert cluster.workers[leaver].wait(60) == 0, cluster.errors()
            wait_for("the list without it", lambda: leaver not in cluster.run.pids())
            left_at = cluster.run.step()
            cluster.wait_step(left_at + 5)
            assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")
            cluster.coordinator.send_signal(signal.SIGTERM)
            assert cluster.coordinator.wait(60) == 0
            last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last), last)
        check_samples(cluster.run, last, GLOBAL_BATCH)
        print(f"coordinator killed after step {before}, {leaver} left by step {left_at}; "
              f"resumed {[(round(e['seconds'], 2), e['steps_repeated']) for e in cluster.run.events('resumed')]}")


main()
