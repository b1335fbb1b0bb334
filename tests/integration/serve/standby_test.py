"""Two coordinators with one store in etcd: the leader is killed, the other one serves, and its workers' losses
are those of the undisturbed run.
"""
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, check_same, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.etcd import Coordinators, Etcd  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, PATIENT, WORKERS, write_job  # noqa: E402

STEPS = 120


def check_refused(done, what):
    assert done.returncode == 2 and what in done.stderr and done.stderr.count("\n") == 1, done


def check_refusals(cluster, job, folder):
    """What a user is told who asks the wrong one, shows nothing, or has jobs write elsewhere."""
    standing_by = cluster.own_status(1)
    assert standing_by["reason"] == f"{cluster.addresses[0]} leads", standing_by
    assert f"coordinator {cluster.addresses[1]} stands by: {cluster.addresses[0]} leads" in cluster.errors()
    for address in cluster.addresses:
        check_refused(heddle("status", "--coordinator", address), "takes calls with a certificate only")
        watched = heddle("submit", job, "--coordinator", address, *cluster.certs("viewer"))
        check_refused(watched, "viewer may not call Submit")
    outside = heddle("submit", job, "--coordinator", cluster.addresses[1], "--out", folder + "-outside",
                     *cluster.certs("operator"))
    check_refused(outside, "is not below a place where this coordinator's jobs may write")
    for store, what in (("etcd://127.0.0.1/x", "is not HOST:PORT"), ("etcd://127.0.0.1:1/x?lease=0", "lease=0")):
        check_refused(heddle("serve", "--store", store, "--listen", "127.0.0.1:0", "--output-root", folder), what)
    rootless = heddle("serve", "--store", cluster.store, "--listen", "127.0.0.1:0")
    check_refused(rootless, "--output-root: with the state in etcd")
    assert not os.path.exists(os.path.join(folder, "etcd:")), "a store in etcd is no folder"


def kill_leader(cluster):
    """Returns who leads now."""
    leader = cluster.wait_leader()
    other = 1 - leader
    cluster.coordinators[leader].kill()
    cluster.coordinators[leader].wait(60)
    wait_for("the other one's service", lambda: cluster.leads(other))
    return other


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = Run(os.path.join(folder, "undisturbed"), job).start().finish().losses()
        lab = os.path.join(folder, "lab")
        made = heddle("certs", "init", lab, *(word for name in WORKERS for word in ("--worker", name)))
        assert made.returncode == 0, made
        with Etcd(folder) as etcd, Coordinators(folder, "served", etcd, lab) as cluster:
            cluster.serve(0)
            assert cluster.wait_leader() == 0
            cluster.serve(1)
            check_refusals(cluster, job, folder)
            cluster.submit(job, PATIENT)
            for name in WORKERS:
                cluster.worker(name)
            cluster.wait_step(chance.randrange(5, 20))
            pids = cluster.run.pids()

            leader = kill_leader(cluster)
            before = cluster.run.step()
            cluster.wait_step(before + 5)
            cluster.check_alive(pids)
            wait_for("all workers' return", lambda: cluster.run.events("coordinator_restarted"))

            # The one that was killed comes back and stands by; a leader that is asked to end gives way at once.
            cluster.serve(1 - leader)
            assert cluster.stands_by(1 - leader), cluster.own_status(1 - leader)
            assert cluster.status()["phase"] != "standby", "of several addresses the leader answers"
            cluster.end(leader)
            assert cluster.wait_leader() == 1 - leader
            cluster.finish()
            assert cluster.run.events("worker_lost") == [], cluster.run.events("worker_lost")
            check_same(cluster.run, undisturbed, STEPS)
            check_samples(cluster.run, STEPS, GLOBAL_BATCH)
            cluster.end(1 - leader)
            with open(cluster.log_path, encoding="utf-8") as log:
                lines = re.findall("step .* workers (.*) generation", log.read())
            assert lines and not {"0 ", "-1 "} & set(lines), lines
            assert etcd.ctl("get", "/heddle/served/leader").stdout == "", "the lease was given back"


main()
