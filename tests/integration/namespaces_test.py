"""Three workers in three network namespaces, joined by a bridge, each behind a token bucket of 200 Mbit/s: TCP
alone joins them. One is killed, in another run one is cut off: the job goes on, and the losses are those of an
undisturbed run. Exit 77: not root, or no namespaces here.
"""
import os
import random
import sys

from harness import Scratch, check_same, check_samples, seed, wait_for
from harness.served import GLOBAL_BATCH, WORKERS, Cluster, undisturbed_losses, write_job
from harness.text_data import prose
from tiers import sample
import namespaces  # pylint: disable=wrong-import-order,import-error  # harness knows its folder.

STEPS = 40
SUBNET = namespaces.subnet(64)
GATE = SUBNET + ".254"
RATE = ["tbf", "rate", "200mbit", "burst", "128kb", "latency", "50ms"]


def start(folder, name, job, network):
    cluster = Cluster(folder, name, GATE + ":0")
    cluster.serve()
    for worker in WORKERS:
        cluster.worker(worker, "--bind", network.address(worker), prefix=namespaces.within(worker))
    cluster.submit(job)
    return cluster


def one_fault(folder, job, network, chance, undisturbed, how):
    with start(folder, how, job, network) as cluster:
        cluster.wait_step(chance.randrange(3, 15))
        pids = cluster.run.pids()
        assert set(pids) == set(WORKERS), pids
        victim = chance.choice(WORKERS)
        before = cluster.run.step()
        if how == "killed":
            cluster.kill(victim)
        else:
            network.unplug(victim)
        wait_for("the loss", lambda: cluster.run.events("worker_lost"))
        wait_for("steps without it", lambda: cluster.run.step() > before + 2 or cluster.finished())
        cluster.check_alive({name: pid for name, pid in pids.items() if name != victim})
        if how != "killed":
            # It is alive and alone; what it tries can no longer change anything.
            cluster.check_alive({victim: pids[victim]})
            cluster.kill(victim)
            network.plug(victim)
        cluster.finish(240)
        [lost] = cluster.run.events("worker_lost")
        assert lost["worker"] == victim, lost
        check_same(cluster.run, undisturbed, STEPS)
        check_samples(cluster.run, STEPS, GLOBAL_BATCH)
        resumed = [(round(event["seconds"], 2), event["steps_repeated"]) for event in cluster.run.events("resumed")]
        print(f"{victim} {how} after step {before} ({lost['reason']}), resumed {resumed}", flush=True)


def main():
    chance = random.Random(seed())
    if os.geteuid() != 0:
        print("SKIPPED: network namespaces need root", file=sys.stderr)
        sys.exit(77)
    try:
        network = namespaces.Bridged(WORKERS, SUBNET, GATE, RATE)
    except OSError as error:
        print(f"SKIPPED: no network namespaces here: {error}", file=sys.stderr)
        sys.exit(77)
    with network, Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = undisturbed_losses(folder, job)
        for how in sample(("killed", "cut off"), chance, 1, 1):
            one_fault(folder, job, network, chance, undisturbed, how)


main()
