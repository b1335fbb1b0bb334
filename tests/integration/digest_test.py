"""A bit that flips in one worker's memory is found when replicas of the state are compared, and its worker is named.

Every worker holds the whole model. The test finds a weight in the memory of one process and writes into it through
/proc: nothing in the product knows of that. With three workers the one that differs gets its state anew from the
others; with two the job goes back to the checkpoint of a step at which they agreed, and its losses are those of an
undisturbed run.
"""
import json
import os
import random
import re
import sys

import numpy

from harness import Run, Scratch, check_same, check_samples, seed, wait_for

STEPS = 150
GLOBAL_BATCH = 24
MICROBATCHES = 12
HIDDEN = 96  # Elements of a norm's weight, which begin as 1 and stay near it.


def replicas(folder, workers):
    """A plan file: each worker is a pipeline by itself."""
    share = MICROBATCHES // len(workers)
    pipelines = [{"first_microbatch": i * share, "microbatches": share,
                  "stages": [{"worker": i, "first_segment": 0, "last_segment": 10, "recompute": False, "ahead": 0}]}
                 for i in range(len(workers))]
    plan = {"generation": 1, "determinism": "exact", "workers": list(workers), "transports": [],
            "predicted_step_seconds": 0, "predicted_peak_bytes": [], "pipelines": pipelines}
    path = os.path.join(folder, f"plan-{len(workers)}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    return path


def norms(pid):
    """Addresses of float32 arrays in the process that may be a norm's weight after some steps."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end, rights, name = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+ *(.*)", line).groups()
            begin, end = int(begin, 16), int(end, 16)
            if not rights.startswith("rw") or name not in ("", "[heap]") or end - begin > 1 << 28:
                continue
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue
            values = numpy.frombuffer(data[:len(data) // 4 * 4], dtype=numpy.float32)
            near = numpy.concatenate(([0], ((values > 0.8) & (values < 1.2) & (values != 1)).astype(numpy.int8), [0]))
            edges = numpy.flatnonzero(numpy.diff(near))
            for first, last in zip(edges[::2], edges[1::2]):
                if last - first >= HIDDEN * 3 // 4:
                    found.append(begin + 4 * int(first + (last - first) // 2))
    return found


def flip(pid, chance):
    """Flips a bit of the middle of each such array."""
    addresses = norms(pid)
    bit = 1 << chance.randrange(12, 20)
    with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
        for address in addresses:
            memory.seek(address)
            value = int.from_bytes(memory.read(4), "little")
            memory.seek(address)
            memory.write((value ^ bit).to_bytes(4, "little"))
    print(f"flipped {bit:#x} at {len(addresses)} places", flush=True)
    return len(addresses)


def train(folder, plan, workers):
    named = ", ".join("{name: %s, emulate: {speed: 0.3}}" % name for name in workers)
    return Run(os.path.join(folder, f"of-{len(workers)}"),
               overrides=[f"workers=[{named}]", "plan=" + plan, f"steps={STEPS}", "elastic.drift_threshold=100",
                          "elastic.digest_every=2", "checkpoint.every=10", "validation.every=0"])


def alter_one(folder, workers, chance):
    """The run, and who was altered in it after its first checkpoint."""
    run = train(folder, replicas(folder, workers), workers).start()
    run.wait_step(12)
    worker = chance.choice(workers)
    pid = run.pids()[worker]
    for _ in range(5):  # The optimizer may write the weight at the same moment, over the bit.
        try:
            assert flip(pid, chance) > 0, "no weight is found in the process"
        except PermissionError as error:
            print(f"skipped: the memory of other processes cannot be written here: {error}", flush=True)
            run.process.kill()
            sys.exit(77)
        step = run.step()
        wait_for("a comparison", lambda: run.events("state_disagrees") or run.step() >= step + 5 or
                 run.process.poll() is not None)
        if run.events("state_disagrees"):
            break
    run.finish()
    check_samples(run, STEPS, GLOBAL_BATCH)
    found = run.events("state_disagrees")
    print(f"{workers}: altered {worker}; "
          f"{[(e['step'], e['workers'], e['majority'], e['agreed_step']) for e in found]}, resumed "
          f"{[(round(e['seconds'], 2), e['steps_repeated']) for e in run.events('resumed')]}", flush=True)
    assert len(found) == 1, found
    assert not run.events("worker_lost"), run.events("worker_lost")
    return run, worker, found[0]


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        run, worker, found = alter_one(folder, "abc", chance)
        assert found["workers"] == [worker] and found["majority"] == "yes", found
        assert [event["chosen"] for event in run.events("recovery_source")] == ["live"], run.events("recovery_source")

        run, worker, found = alter_one(folder, "ab", chance)
        assert found["workers"] == ["a", "b"] and found["majority"] == "no", found
        source = run.events("recovery_source")[-1]
        assert source["chosen"] == "checkpoint" and source["step"] <= found["agreed_step"], source
        alone = Run(os.path.join(folder, "undisturbed"),
                    overrides=["workers=[{name: a}]", f"steps={STEPS}", "checkpoint.every=0", "validation.every=0"])
        check_same(run, alone.start().finish().losses(), STEPS)


main()
