"""The coordinator is killed at random moments beside a checkpoint, and started again: it serves, all workers keep
their processes, and no step is lost or run twice.

HEDDLE_COORDINATOR_KILLS says how often instead of the tier's few times, and with HEDDLE_CHECKPOINT_GB the state is so
large (scripts/acceptance: fifty times beside ten gigabytes; then the losses are compared with nothing).
"""
import math
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, Scratch, check_same, check_samples, seed, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import PATIENT, WORKERS, Cluster, losses_until, write_job  # noqa: E402
from tiers import scaled  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
GIGABYTES = float(os.environ.get("HEDDLE_CHECKPOINT_GB", "0"))
BYTES_A_PARAMETER = 12  # Weight and two moments, fp32.


def large_model():
    """Changes of the job for a state of GIGABYTES; a layer is about 0.6 of them."""
    hidden, intermediate = 2048, 5632
    layer = BYTES_A_PARAMETER * (4 * hidden * hidden + 3 * hidden * intermediate)
    return [f"model.hidden_size={hidden}", f"model.intermediate_size={intermediate}", "model.num_attention_heads=16",
            "model.num_key_value_heads=16", f"model.num_hidden_layers={math.ceil(GIGABYTES * 1e9 / layer)}",
            "batch.sequence=8", "batch.microbatch=1", "batch.global=2", "checkpoint.every=20", "checkpoint.keep=1",
            "workers=[{name: a}, {name: b}]"]


def kill(cluster, chance):
    """Seconds until status is answered again."""
    time.sleep(chance.uniform(0, 2))  # The moment is any.
    cluster.coordinator.kill()
    cluster.coordinator.wait(60)
    begun = time.monotonic()
    cluster.serve()
    assert cluster.status()["phase"], "no status"
    return time.monotonic() - begun


def main():
    chance = random.Random(seed())
    kills = int(os.environ.get("HEDDLE_COORDINATOR_KILLS", "0")) or scaled(1, 2, 8)
    changes = large_model() if GIGABYTES else []
    names = WORKERS[:2] if GIGABYTES else WORKERS
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Cluster(folder, "served") as cluster:
            cluster.serve()
            cluster.submit(job, PATIENT, *changes)
            for name in names:
                cluster.worker(name)
            wait_for("a checkpoint", lambda: cluster.run.events("checkpoint"), 1200 if GIGABYTES else PATIENCE)
            pids = cluster.run.pids()
            took = []
            for _ in range(kills):
                before = cluster.run.step()
                took.append(kill(cluster, chance))
                cluster.wait_step(before + 2, 300 if GIGABYTES else PATIENCE)
                cluster.check_alive(pids)
            for kind in ("worker_lost", "recovery_source", "resumed"):
                assert cluster.run.events(kind) == [], cluster.run.events(kind)
        last = cluster.run.step()
        # A coordinator that begins again may tell steps again; none is run again within a generation.
        steps = {event["step"] for event in cluster.run.events("step")}
        assert steps == set(range(1, last + 1)), f"missing: {set(range(1, last + 1)) - steps}"
        assert len({event["generation"] for event in cluster.run.events("plan")}) == 1, "the plan changed"
        size = sum(event["raw_bytes"] for event in cluster.run.events("checkpoint")[-1:])
        print(f"{kills} kills beside a checkpoint of {size / 1e9:.2f} GB: serves again after "
              f"{sorted(took)[len(took) // 2]:.2f} s, at most {max(took):.2f} s", flush=True)
        if GIGABYTES:
            return
        check_samples(cluster.run, last, 12)
        check_same(cluster.run, losses_until(folder, job, last), last)


main()
