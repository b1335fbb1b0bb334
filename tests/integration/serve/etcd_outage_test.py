"""Two coordinators with one store in three members of etcd. The member that leads is killed; the coordinators' lease is
revoked; a leader is stopped for 30 s, and writes nothing when it goes on, but stands by; etcd has no majority for 60 s.
Training goes on through all of it, the other coordinator serves within five seconds, what needs the store waits and
says so. Nobody is lost, no step is run twice.
"""
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Run, Scratch, alive, check_same, check_samples, heddle, seed, wait_for  # noqa: E402
from harness.etcd import SERVES_WITHIN, Coordinators, Etcd, Stopwatch  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import GLOBAL_BATCH, WORKERS, write_job  # noqa: E402

STEPS = 3000
STOPPED_SECONDS = 30
OUTAGE_SECONDS = 60


def check_nobody_was_lost(cluster, pids):
    cluster.check_alive(pids)
    for kind in ("worker_lost", "recovery_source", "resumed"):
        assert cluster.run.events(kind) == [], cluster.run.events(kind)


def applied(cluster):
    return min((int(worker["applied_step"]) for worker in cluster.status()["workers"]), default=0)


def log_file(cluster):
    return os.stat(os.path.join(cluster.run.folder, "events.jsonl")).st_ino


def kill_leader_of_etcd(cluster, etcd, watch, pids):
    member, before = etcd.leader(), cluster.run.step()
    watch.begin()
    etcd.kill(member)
    wait_for("etcd", etcd.answers, 60)
    cluster.wait_leader()
    took = watch.seconds()
    cluster.wait_step(before + 10)
    etcd.start(member)
    check_nobody_was_lost(cluster, pids)
    print(f"leader of etcd, member {member}, killed after step {before}: a coordinator serves after {took:.1f} s",
          flush=True)


def revoke_lease(cluster, etcd, watch, pids):
    term, _ = cluster.term()
    leases = etcd.ctl("lease", "list", "-w", "json")
    watch.begin()
    for lease in json.loads(leases.stdout)["leases"]:
        etcd.ctl("lease", "revoke", f"{lease['id']:x}")
    wait_for("another term", lambda: cluster.term()[0] > term, 60)
    _, leader = cluster.term()
    wait_for("its service", lambda: cluster.leads(leader), 60)
    watch.check(SERVES_WITHIN, f"lease revoked: coordinator {leader} serves")
    wait_for("that one stands by", lambda: any(cluster.stands_by(number) for number in range(2)), 60)
    cluster.wait_step(cluster.run.step() + 10)
    check_nobody_was_lost(cluster, pids)


def stop_leader(cluster, watch, pids, folder):
    leader = cluster.wait_leader()
    other = 1 - leader
    process = cluster.coordinators[leader]
    before, file = cluster.run.step(), log_file(cluster)
    old_log = os.path.join(folder, "old-events.jsonl")
    os.link(os.path.join(cluster.run.folder, "events.jsonl"), old_log)
    process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    watch.begin()
    wait_for("the other one's service", lambda: cluster.leads(other), 60)
    watch.check(SERVES_WITHIN, f"leader {leader} stopped after step {before}: the other one serves")
    wait_for("a log of its own", lambda: log_file(cluster) != file, 30)
    cluster.wait_step(before + 10)
    time.sleep(max(0, begun + STOPPED_SECONDS - time.monotonic()))  # For so long it is stopped: that is what is tested.
    size, term = os.path.getsize(old_log), cluster.term()
    process.send_signal(signal.SIGCONT)
    # On a machine that stands still for seconds the other one's lease may end, too: then a later term is this one's.
    wait_for("that it stands by", lambda: cluster.stands_by(leader) or cluster.term()[0] > term[0], 60)
    assert alive(process.pid) and process.poll() is None, cluster.errors()
    assert "leads no longer, and stands by again" in cluster.errors(), cluster.errors()
    cluster.wait_step(cluster.run.step() + 10)
    if cluster.term() == term:
        assert cluster.leads(other) and cluster.run.job()["coordinator"] == cluster.addresses[other]
    assert os.path.getsize(old_log) == size, "it wrote to the log that it had open"
    check_nobody_was_lost(cluster, pids)


def lose_quorum(cluster, etcd, chance, watch, pids, job):
    stopped = chance.sample(range(3), 2)
    before = applied(cluster)
    etcd.signal(stopped, signal.SIGSTOP)
    begun = time.monotonic()
    everybody = range(len(cluster.addresses))
    wait_for("what is wrong, in the status of both", lambda: all(
        "etcd" in (cluster.own_status(number) or {"reason": ""})["reason"] for number in everybody), 40)
    refused = heddle("submit", job, "--coordinator", cluster.listen, "--out", cluster.run.folder + "-refused")
    assert refused.returncode != 0 and not os.path.exists(cluster.run.folder + "-refused"), refused
    known = cluster.run.step()
    time.sleep(max(0, begun + OUTAGE_SECONDS - time.monotonic()))  # For so long etcd has no majority.
    cluster.check_alive(pids)
    watch.begin()
    etcd.signal(stopped, signal.SIGCONT)
    cluster.wait_leader()
    took = watch.seconds()
    # More steps than can have been made since: they were made while nobody led.
    wait_for("what was trained meanwhile", lambda: applied(cluster) > before, 60)
    trained = applied(cluster) - before
    assert trained > 50, f"{trained} steps in {OUTAGE_SECONDS} s without etcd"
    cluster.wait_step(known + trained)
    check_nobody_was_lost(cluster, pids)
    print(f"members {stopped} of etcd stopped for {OUTAGE_SECONDS} s: {trained} steps meanwhile, and a coordinator "
          f"serves {took:.1f} s after the end", flush=True)


def main():
    chance = random.Random(seed())
    watch = Stopwatch()
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Etcd(folder, 3) as etcd, Coordinators(folder, "served", etcd) as cluster:
            for number in range(2):
                cluster.serve(number)
            cluster.submit(job)
            for name in WORKERS:
                cluster.worker(name)
            cluster.wait_step(5)
            pids = cluster.run.pids()
            kill_leader_of_etcd(cluster, etcd, watch, pids)
            revoke_lease(cluster, etcd, watch, pids)
            stop_leader(cluster, watch, pids, folder)
            lose_quorum(cluster, etcd, chance, watch, pids, job)
        last = cluster.run.step()
        undisturbed = Run(os.path.join(folder, "undisturbed"), job).start()
        undisturbed.wait_step(last, 300)
        losses = undisturbed.losses()
        undisturbed.process.kill()
        check_same(cluster.run, losses, last)
        check_samples(cluster.run, last, GLOBAL_BATCH)
        print(f"{last} steps, all equal")


main()
