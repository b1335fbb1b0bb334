"""`heddle ops`: a job's operators on two kinds of worker. Two instruction sets are both right; a report with an error
that rounding does not explain is named; what is no report, or of another job, is one line.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, SMOKE, Scratch  # noqa: E402

NARROW = {**os.environ, "HEDDLE_SIMD": "baseline", "ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell"}


def ops(*arguments, code=0, env=None):
    done = subprocess.run([HEDDLE, "ops", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL, env=env)
    assert done.returncode == code, (arguments, done)
    return done


def altered(path, copy, change):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    change(report["runs"][0])
    with open(copy, "w", encoding="utf-8") as file:
        json.dump(report, file)
    return report["runs"][0]["op"]


def main():
    with Scratch() as folder:
        here, there, other, wrong = (os.path.join(folder, name) for name in ("here", "there", "other", "wrong"))
        ops("run", SMOKE, "--out", here)
        ops("run", SMOKE, "--out", there, env=NARROW)
        compared = json.loads(ops("compare", here, there, "--json").stdout)["operators"]
        assert compared
        print(f"{len(compared)} outputs, {sum(each['same_bits'] for each in compared)} of the same bits, at most "
              f"{max(each['difference'] for each in compared):.3g} units apart")
        assert not any(each["fault_a"] or each["fault_b"] for each in compared), compared
        assert "no operator is wrong" in ops("compare", here, there).stdout

        def coarser(run):
            run["mean_error"] += 0.01
        op = altered(here, wrong, coarser)
        done = ops("compare", here, wrong, code=1)
        assert f"\n{op}" in done.stdout and "wrong on B: " in done.stdout and "1 wrong" in done.stdout, done.stdout

        ops("run", SMOKE, "--set", "batch.sequence=24", "--out", other)
        for a, b in ((here, other), (here, SMOKE), (here, os.path.join(folder, "none"))):
            line = ops("compare", a, b, code=2).stderr
            assert line.count("\n") == 1, line
        altered(here, wrong, lambda run: run.update(elements="many"))
        assert wrong in ops("compare", here, wrong, code=2).stderr


main()
