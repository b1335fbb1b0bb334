"""A move of state that takes many times the lease, over a slow connection: nobody is given up, its progress is shown,
and no step is run again. HEDDLE_MOVE_SECONDS says how long it is to take (scripts/acceptance: ten minutes).
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import PATIENCE, Scratch, check_same, check_samples, heddle, wait_for  # noqa: E402
from harness.served import GLOBAL_BATCH, Cluster, losses_until, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
DRAINED_AFTER = 4
LEASE = 3
SECONDS = float(os.environ.get("HEDDLE_MOVE_SECONDS", "20"))
# Large state and small activations: the steps before the move do not suffer much.
MODEL = ["model.hidden_size=256", "model.intermediate_size=688", "model.num_hidden_layers=8", "batch.sequence=8",
         "batch.microbatch=1", "checkpoint.every=0", f"elastic.lease={LEASE}s"]
STATE_BYTES = 8 * (3 * 256 * 256 + 3 * 256 * 688) * 12
# Less than the state and its gradients: two of them carry it together.
MEMORY = int(1.2 * STATE_BYTES)
WORKERS = f"workers=[{', '.join(f'{{name: {name}, emulate: {{memory: {MEMORY}B, speed: 0.2}}}}' for name in 'abc')}]"


def moving(cluster):
    return [worker for worker in cluster.status()["workers"] if worker["standing"] == "moving"]


def watch_move(cluster):
    """The different shares of the state that status showed until it had come, in percent."""
    shown = []
    deadline = time.monotonic() + 3 * SECONDS + PATIENCE
    while workers := moving(cluster):
        assert time.monotonic() < deadline, f"the move does not end: {workers}"
        all_bytes = sum(int(worker["bytes_to_move"]) for worker in workers)
        moved = sum(int(worker["moved_bytes"]) for worker in workers)
        if all_bytes and (not shown or shown[-1] != 100 * moved // all_bytes):
            shown.append(100 * moved // all_bytes)
        time.sleep(0.2)  # A person looks, now and then.
    assert shown == sorted(shown), shown
    return shown


def main():
    with Scratch() as folder:
        job = write_job(folder, prose(folder), STEPS)
        with Cluster(folder, "served") as cluster:
            cluster.serve()
            cluster.submit(job, *MODEL, WORKERS, "elastic.minimum_workers=2")
            for name in "ab":
                cluster.worker(name)
            cluster.wait_step(DRAINED_AFTER)
            cluster.worker("c")
            wait_for("c to take part", lambda: "c" in cluster.run.events("plan")[-1]["plan"]["workers"])
            cluster.wait_step(cluster.run.step() + 2)
            changed = heddle("emulate", "b", f"link={STATE_BYTES / 2 / SECONDS / 1e6:.3f}MB/s", "--coordinator",
                             cluster.listen)
            assert changed.returncode == 0, changed.stderr
            drained = heddle("drain", "b", "--coordinator", cluster.listen)
            assert drained.returncode == 0, drained.stderr
            wait_for("the move", lambda: moving(cluster))
            begun = time.monotonic()
            shown = watch_move(cluster)
            took = time.monotonic() - begun
            print(f"shown: {shown}", flush=True)
            assert len(shown) >= 3, "its progress was not shown"
            assert took > 3 * LEASE, f"the move took {took:.1f} s only"
            assert cluster.workers.pop("b").wait(60) == 0, cluster.errors()
            cluster.wait_step(cluster.run.step() + 5)
            for kind in ("worker_lost", "recovery_source"):
                assert cluster.run.events(kind) == [], cluster.run.events(kind)
            steps = [event["step"] for event in cluster.run.events("step")]
            assert steps == list(range(1, len(steps) + 1)), f"a step was run again: {steps}"
            print(f"the move took {took:.0f} s, {took / LEASE:.0f} leases", flush=True)
        last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last, *MODEL), last)
        check_samples(cluster.run, last, GLOBAL_BATCH)


main()
