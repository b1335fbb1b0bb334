"""What a coordinator does with the plan of 64 workers before it sends it, while a recovery waits.

lower_seconds   all workers' programs
hash_seconds    their hashes
verify_adds     hashing and verifying side by side, less hashing alone: what the verification adds to a recovery
over_rest       that over lowering and hashing
memory_seconds  predicting what all workers' processes take of their hosts' memory
"""
import json
import os
import subprocess

from support import heddle, report

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(heddle.BINARY)), "benchmarks", "programs", "programs_bench")
# Layers, pipelines, stages, microbatches of a pipeline.
SHAPES = ((12, 32, 2, 4), (32, 8, 8, 8), (32, 16, 4, 16), (32, 64, 1, 8), (80, 4, 16, 64))


def run(options, rows):
    failed = False
    for shape in SHAPES:
        for determinism in ("exact", "relaxed"):
            if options.only not in f"{'x'.join(map(str, shape))} {determinism}":
                continue
            case = dict(zip(("layers", "pipelines", "stages", "microbatches"), shape)) | {"sums": determinism}
            repetitions = options.repeat or (5 if options.quick else 15)
            done = subprocess.run([PROGRAM, *map(str, shape), determinism, str(repetitions)], capture_output=True,
                                  text=True, check=False)
            if done.returncode != 0:
                report.say(f"programs: {case}: {heddle.last_line(done.stderr)}")
                failed = True
                continue
            add(rows, case, [json.loads(line) for line in done.stdout.splitlines()])
    return failed


def add(rows, case, runs):
    adds = report.median([one["take"] - one["hash"] for one in runs])
    rest = report.median([one["lower"] + one["hash"] for one in runs])
    rows.add(case, "heddle", True, "lower_seconds", report.median([one["lower"] for one in runs]), "s")
    rows.add(case, "heddle", True, "hash_seconds", report.median([one["hash"] for one in runs]), "s")
    rows.add(case, "heddle", True, "verify_adds", adds, "s")
    rows.add(case, "heddle", True, "over_rest", adds / rest, "ratio")
    rows.add(case, "heddle", True, "memory_seconds", report.median([one["memory"] for one in runs]), "s")
