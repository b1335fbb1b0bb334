"""How soon the members of a group learn of a fault, and how soon the next group has formed.

noticed_visible  from the SIGKILL of one of four workers to the end of a survivor's operation
noticed_silent   the same from a SIGSTOP or a link that goes silent; the operations' timeout is one second
forming          from the call of the slowest of four workers to its new group
"""
import json
import os
import subprocess
import sys

from support import heddle, report

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DRIVER = os.path.join(ROOT, "tests", "comm", "faults_test.py")
SKIPPED = 77


def run(options, rows):
    build = os.environ.get("HEDDLE_BENCHMARK_BUILD") or os.path.dirname(os.path.dirname(heddle.BINARY))
    member = os.path.join(build, "tests", "comm", "comm_member")
    if not os.path.exists(member):
        raise heddle.Failure(f"{member} is not there: build with the tests (-DHEDDLE_TESTS=ON)")
    runs = options.repeat or (40 if options.quick else 170)
    failed = False
    for family in ("shm", "tcp", "links"):
        if options.only not in family:
            continue
        out = os.path.join(options.folder, family + ".json")
        command = [sys.executable, DRIVER, member, family, str(runs), out]
        code = subprocess.run(command, check=False, timeout=3600).returncode
        if code == SKIPPED:
            report.say(f"{family}: skipped")
            continue
        failed = failed or code != 0
        if not os.path.exists(out):
            continue
        with open(out, encoding="utf-8") as file:
            times = json.load(file)
        for name, metric in (("visible", "noticed_visible"), ("silent", "noticed_silent"), ("forming", "forming")):
            values = sorted(times[name])
            if values:
                rows.add({"family": family, "runs": runs}, "heddle", True, f"{metric}_p50", report.median(values), "s")
                rows.add({"family": family, "runs": runs}, "heddle", True, f"{metric}_p99",
                         values[min(len(values) - 1, int(0.99 * len(values)))], "s")
    return failed
