"""The way between the coordinator and its workers is frozen, cut or slow for longer than a lease: for one of them,
half, all, and by stopping the coordinator. Nobody is given up, training goes on meanwhile, and no step is run twice. A
worker that is stopped itself is given up, and joins again in the same process.

HEDDLE_DISTURBANCES says how many disturbances, of 1 to 60 s each, instead of the tier's few short ones.
"""
import contextlib
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, check_same, check_samples, seed, trained, wait_for  # noqa: E402
from harness.proxy import Proxy  # noqa: E402
from harness.served import GLOBAL_BATCH, WORKERS, Cluster, losses_until, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402
from tiers import scaled  # noqa: E402

LEASE = 1.5
LONG = int(os.environ.get("HEDDLE_DISTURBANCES", "0"))
STEPS = 100_000  # None of it ends by itself.


def steps_by_worker(cluster):
    return {worker["name"]: int(worker["applied_step"]) for worker in cluster.status()["workers"]}


def check_nobody_was_lost(cluster, pids):
    cluster.check_alive(pids)
    for kind in ("worker_lost", "recovery_source", "resumed"):
        assert cluster.run.events(kind) == [], cluster.run.events(kind)


def last_at_least(seconds, metrics):
    """For so long the way is disturbed, and until training has gone on meanwhile; the last step then."""
    begun, before = time.monotonic(), trained(metrics)
    wait_for("training meanwhile", lambda: trained(metrics) >= before + 3)
    time.sleep(max(0, begun + seconds - time.monotonic()))
    return trained(metrics)


def disturb(cluster, proxies, chance, pids, metrics):
    """One disturbance; what was done."""
    kind = chance.choice(["freeze", "cut", "delay", "stop"])
    seconds = chance.uniform(1, 60) if LONG else LEASE * chance.uniform(1.2, 3)
    before = cluster.run.step()
    if kind == "stop":
        names = WORKERS
        cluster.coordinator.send_signal(signal.SIGSTOP)
        done = last_at_least(seconds, metrics)
        cluster.coordinator.send_signal(signal.SIGCONT)
    else:
        names = "".join(chance.sample(WORKERS, chance.choice([1, 2, 3])))
        for name in names:
            if kind == "delay":
                proxies[name].delay(seconds / 2)
            else:
                getattr(proxies[name], kind)()
        done = last_at_least(seconds, metrics)
        for name in names:
            proxies[name].mend()
    # All that was trained meanwhile becomes known when they are heard again.
    cluster.wait_step(done)
    wait_for("every worker's word", lambda: cluster.status()["phase"] in ("training", "finished") and
             min(steps_by_worker(cluster).values()) > before)
    check_nobody_was_lost(cluster, pids)
    return f"{kind} {names} {seconds:.1f} s: {cluster.run.step() - before} steps"


def stop_a_worker(cluster, chance):
    """Given up after its lease, it begins anew when it goes on."""
    name = chance.choice(WORKERS)
    process = cluster.workers[name]
    process.send_signal(signal.SIGSTOP)
    wait_for("the loss", lambda: [event["worker"] for event in cluster.run.events("worker_lost")] == [name])
    step = cluster.run.step()
    process.send_signal(signal.SIGCONT)
    joined = len(cluster.run.events("worker_joined"))
    wait_for("its return", lambda: len(cluster.run.events("worker_joined")) > joined)
    back = cluster.run.events("worker_joined")[-1]
    assert (back["worker"], back["pid"]) == (name, process.pid), back
    assert process.poll() is None
    cluster.wait_step(step + 3)
    return f"stopped {name}, which came back after step {step}"


def main():
    chance = random.Random(seed())
    done = []
    with Scratch() as folder, contextlib.ExitStack() as stack:
        job = write_job(folder, prose(folder), STEPS)
        overrides = [f"elastic.lease={LEASE}s"]
        with Cluster(folder, "served") as cluster:
            cluster.serve()
            proxies = {}
            own = cluster.listen
            for name in WORKERS:
                proxies[name] = stack.enter_context(Proxy(own))
                cluster.listen = proxies[name].address
                cluster.worker(name)
            cluster.listen = own
            cluster.submit(job, *overrides)
            cluster.wait_step(5)
            pids = cluster.run.pids()
            metrics = [worker["metrics_address"] for worker in cluster.status()["workers"]]
            for _ in range(LONG or scaled(1, 2, 12)):
                done.append(disturb(cluster, proxies, chance, pids, metrics))
            done.append(stop_a_worker(cluster, chance))
            print("\n".join(done))
        last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last, *overrides), last)
        check_samples(cluster.run, last, GLOBAL_BATCH)


main()
