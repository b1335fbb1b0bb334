"""Two coordinators with one store in three members of etcd. The member that leads is killed; the coordinators' lease is
revoked; a leader is stopped for 30 s, and writes nothing when it goes on, but stands by; etcd has no majority for 60 s.
Training goes on through all of it, the other coordinator serves, what needs the store waits and says so. Nobody is
lost, no step is run twice.
"""
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, alive, check_same, check_samples, heddle, seed, trained, wait_for  # noqa: E402
from harness.etcd import Coordinators, Etcd  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, PATIENT, WORKERS, losses_until, write_job  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
STOPPED_SECONDS = 30
OUTAGE_SECONDS = 60


def check_nobody_was_lost(cluster, pids):
    cluster.check_alive(pids)
    for kind in ("worker_lost", "recovery_source", "resumed"):
        assert cluster.run.events(kind) == [], cluster.run.events(kind)


def log_file(cluster):
    return os.stat(os.path.join(cluster.run.folder, "events.jsonl")).st_ino


def kill_leader_of_etcd(cluster, etcd, pids):
    member, before = etcd.leader(), cluster.run.step()
    etcd.kill(member)
    wait_for("etcd", etcd.answers)
    cluster.wait_leader()
    cluster.wait_step(before + 10)
    etcd.start(member)
    check_nobody_was_lost(cluster, pids)
    print(f"leader of etcd, member {member}, killed after step {before}", flush=True)


def revoke_lease(cluster, etcd, pids):
    term, _ = cluster.term()
    leases = etcd.ctl("lease", "list", "-w", "json")
    for lease in json.loads(leases.stdout)["leases"]:
        etcd.ctl("lease", "revoke", f"{lease['id']:x}")
    wait_for("another term", lambda: cluster.term()[0] > term)
    _, leader = cluster.term()
    wait_for("its service", lambda: cluster.leads(leader))
    print(f"lease revoked: coordinator {leader} serves", flush=True)
    wait_for("that one stands by", lambda: any(cluster.stands_by(number) for number in range(2)))
    cluster.wait_step(cluster.run.step() + 10)
    check_nobody_was_lost(cluster, pids)


def stop_leader(cluster, pids, folder):
    leader = cluster.wait_leader()
    other = 1 - leader
    process = cluster.coordinators[leader]
    before, file = cluster.run.step(), log_file(cluster)
    old_log = os.path.join(folder, "old-events.jsonl")
    os.link(os.path.join(cluster.run.folder, "events.jsonl"), old_log)
    process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    wait_for("the other one's service", lambda: cluster.leads(other))
    print(f"leader {leader} stopped after step {before}: the other one serves", flush=True)
    wait_for("a log of its own", lambda: log_file(cluster) != file)
    cluster.wait_step(before + 10)
    time.sleep(max(0, begun + STOPPED_SECONDS - time.monotonic()))  # For so long it is stopped: that is what is tested.
    size, term = os.path.getsize(old_log), cluster.term()
    process.send_signal(signal.SIGCONT)
    # On a machine that stands still for seconds the other one's lease may end, too: then a later term is this one's.
    wait_for("that it stands by", lambda: cluster.stands_by(leader) or cluster.term()[0] > term[0])
    assert alive(process.pid) and process.poll() is None, cluster.errors()
    assert "leads no longer, and stands by again" in cluster.errors(), cluster.errors()
    cluster.wait_step(cluster.run.step() + 10)
    if cluster.term() == term:
        assert cluster.leads(other) and cluster.run.job()["coordinator"] == cluster.addresses[other]
    assert os.path.getsize(old_log) == size, "it wrote to the log that it had open"
    check_nobody_was_lost(cluster, pids)


def lose_quorum(cluster, etcd, chance, pids, job):
    stopped = chance.sample(range(3), 2)
    metrics = [worker["metrics_address"] for worker in cluster.status()["workers"]]
    etcd.signal(stopped, signal.SIGSTOP)
    begun = time.monotonic()
    everybody = range(len(cluster.addresses))
    wait_for("what is wrong, in the status of both", lambda: all(
        "etcd" in (cluster.own_status(number) or {"reason": ""})["reason"] for number in everybody))
    refused = heddle("submit", job, "--coordinator", cluster.listen, "--out", cluster.run.folder + "-refused")
    assert refused.returncode != 0 and not os.path.exists(cluster.run.folder + "-refused"), refused
    before = trained(metrics)
    wait_for("training without etcd", lambda: trained(metrics) >= before + 10)
    time.sleep(max(0, begun + OUTAGE_SECONDS - time.monotonic()))  # For so long etcd has no majority.
    cluster.check_alive(pids)
    done = trained(metrics)
    etcd.signal(stopped, signal.SIGCONT)
    cluster.wait_leader()
    cluster.wait_step(done + 1)
    check_nobody_was_lost(cluster, pids)
    print(f"members {stopped} of etcd stopped for {OUTAGE_SECONDS} s: {done - before} steps meanwhile", flush=True)


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Etcd(folder, 3) as etcd, Coordinators(folder, "served", etcd) as cluster:
            for number in range(2):
                cluster.serve(number)
            cluster.submit(job, PATIENT)
            for name in WORKERS:
                cluster.worker(name)
            cluster.wait_step(5)
            pids = cluster.run.pids()
            kill_leader_of_etcd(cluster, etcd, pids)
            revoke_lease(cluster, etcd, pids)
            stop_leader(cluster, pids, folder)
            lose_quorum(cluster, etcd, chance, pids, job)
        last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last), last)
        check_samples(cluster.run, last, GLOBAL_BATCH)
        print(f"{last} steps, all equal")


main()
