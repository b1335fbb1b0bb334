"""Three workers in three network namespaces, joined by a bridge, each behind a token bucket of 200 Mbit/s: TCP
alone joins them. One is killed, in another run one is cut off: the job goes on, and the losses are those of an
undisturbed run. Exit 77: not root, or no namespaces here.
"""
import os
import random
import subprocess
import sys

from harness import Run, Scratch, check_same, check_samples, seed, wait_for
from served import GLOBAL_BATCH, WORKERS, Cluster, write_job
from text_data import prose

STEPS = 40
TAG = f"{os.getpid() % 100000:05d}"
BRIDGE = "hb" + TAG
SUBNET = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"
GATE = SUBNET + ".254"
RATE = ["tbf", "rate", "200mbit", "burst", "128kb", "latency", "50ms"]


def run_command(*command, check=True):
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """The namespaces, one a worker; nothing of it is left afterwards."""

    def __init__(self):
        try:
            run_command("ip", "link", "add", BRIDGE, "type", "bridge")
            run_command("ip", "address", "add", GATE + "/24", "dev", BRIDGE)
            run_command("ip", "link", "set", BRIDGE, "up")
            for number, name in enumerate(WORKERS, 1):
                self.add(name, f"{SUBNET}.{number}")
        except OSError:
            self.remove()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        for name in WORKERS:
            run_command("ip", "netns", "delete", self.namespace(name), check=False)
            run_command("ip", "link", "delete", self.outside(name), check=False)
        run_command("ip", "link", "delete", BRIDGE, check=False)

    @staticmethod
    def namespace(name):
        return f"heddle-{TAG}-{name}"

    @staticmethod
    def outside(name):
        return f"hv{TAG}{name}"

    def add(self, name, address):
        outside, inside, space = self.outside(name), f"hw{TAG}{name}", self.namespace(name)
        run_command("ip", "netns", "add", space)
        run_command("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        run_command("ip", "link", "set", inside, "netns", space)
        run_command("ip", "link", "set", outside, "master", BRIDGE, "up")
        within = ["ip", "netns", "exec", space]
        run_command(*within, "ip", "link", "set", "lo", "up")
        run_command(*within, "ip", "address", "add", address + "/24", "dev", inside)
        run_command(*within, "ip", "link", "set", inside, "up")
        run_command(*within, "tc", "qdisc", "add", "dev", inside, "root", *RATE)
        run_command("tc", "qdisc", "add", "dev", outside, "root", *RATE)

    def cut_off(self, name):
        run_command("ip", "link", "set", self.outside(name), "down")

    def join_again(self, name):
        run_command("ip", "link", "set", self.outside(name), "up")


def start(folder, name, job, network):
    cluster = Cluster(folder, name, GATE + ":0")
    cluster.serve()
    for number, worker in enumerate(WORKERS, 1):
        cluster.worker(worker, "--bind", f"{SUBNET}.{number}",
                       prefix=("ip", "netns", "exec", network.namespace(worker)))
    cluster.submit(job)
    return cluster


def one_fault(folder, job, network, chance, undisturbed, how):
    with start(folder, how, job, network) as cluster:
        cluster.wait_step(chance.randrange(3, 15), 120)
        pids = cluster.run.pids()
        assert set(pids) == set(WORKERS), pids
        victim = chance.choice(WORKERS)
        before = cluster.run.step()
        if how == "killed":
            cluster.kill(victim)
        else:
            network.cut_off(victim)
        wait_for("the loss", lambda: cluster.run.events("worker_lost"), 60)
        wait_for("steps without it", lambda: cluster.run.step() > before + 2 or cluster.finished(), 90)
        cluster.check_alive({name: pid for name, pid in pids.items() if name != victim})
        if how != "killed":
            # It is alive and alone; what it tries can no longer change anything.
            cluster.check_alive({victim: pids[victim]})
            cluster.kill(victim)
            network.join_again(victim)
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
        network = Network()
    except OSError as error:
        print(f"SKIPPED: no network namespaces here: {error}", file=sys.stderr)
        sys.exit(77)
    with network, Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = Run(os.path.join(folder, "undisturbed"), job).start().finish(240).losses()
        for how in ("killed", "cut off"):
            one_fault(folder, job, network, chance, undisturbed, how)


main()
