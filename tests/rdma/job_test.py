#!/usr/bin/env python3
"""The main job over RDMA: configs/rdma-smoke.yaml on three guests, with one powered off in mid-run, and with one that
is no longer heard; and undisturbed on two guests and the machine itself. Its losses are those of a run on the machine
alone, bit for bit. Where the three guests share every layer, they are equal but for rounding.

Usage: job_test.py reference HEDDLE LOSSES, which runs it on the machine alone and writes its losses
       job_test.py CHECK HEDDLE LOSSES DEVICE
"""
import json
import os
import pathlib
import subprocess
import tempfile

from job_in_guest import WORKERS, Lead
from vm import CONTROL, ROOT, UNAVAILABLE, VM, check, json_of, rdma_vm, run_check, wait_until

JOB = str(ROOT / "configs" / "rdma-smoke.yaml")
# One worker holds the whole model, the others share a second copy.
PLAN = str(pathlib.Path(__file__).with_name("job_plan.json"))
# All three share each layer, in unlike parts.
SHARDED = str(pathlib.Path(__file__).with_name("sharded_plan.json"))
IN_GUEST = str(pathlib.Path(__file__).with_name("job_in_guest.py"))
HOST = "10.9.0.254"
# Equal bits need equal kernels. OpenBLAS chooses them by the processor and by its environment variables, which a guest
# does not inherit. It also asks the system for AMX's registers; a guest's refuses them, and then it takes other kernels
# for fp32.
ALIKE = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
if " amx_tile" in pathlib.Path("/proc/cpuinfo").read_text("ascii"):
    ALIKE.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
os.environ.update(ALIKE)


def reference(heddle, losses):
    """The same job in processes of this machine."""
    with tempfile.TemporaryDirectory(prefix="heddle-test-") as folder:
        done = subprocess.run([heddle, "train", JOB, "--out", f"{folder}/run", "--quiet"], timeout=240, check=False,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "HEDDLE_CACHE": ""})
        check(done.returncode == 0, f"heddle train: exit code {done.returncode}\n{done.stderr}")
        lines = pathlib.Path(folder, "run", "events.jsonl").read_text(encoding="utf-8").splitlines()
    found = {str(event["step"]): event["loss"] for event in map(json.loads, lines) if event["event"] == "step"}
    pathlib.Path(losses).write_text(json.dumps(found), encoding="utf-8")


def check_losses(found, losses):
    expected = json.loads(pathlib.Path(losses).read_text(encoding="utf-8"))
    different = [step for step, loss in expected.items() if found["losses"].get(step) != loss]
    check(expected and not different, f"losses differ from those of a run on this machine at steps {different[:10]}")


def check_transports(found, expected):
    """What each worker's bytes went over; expected(worker, peer)."""
    for name in WORKERS:
        used = {transport for transport, sent in found["sent"][name].items() if sent > 0}
        wanted = {expected(name, peer) for peer in WORKERS if peer != name}
        check(used == wanted, f"{name} sent over {sorted(used)}, expected {sorted(wanted)}")


def options(heddle, device):
    return ["--device", device, "--memory", 2048, "--time-limit", 300, "--env", "HEDDLE_CACHE=",
            "--env", f"HEDDLE_TEST_CONTROL={CONTROL}", "--see", pathlib.Path(heddle).parent.parent,
            *(word for pair in ALIKE.items() for word in ("--env", "=".join(pair)))]


def run_in_guests(heddle, device, fault, plan=PLAN):
    text, _ = rdma_vm("--guests", 3, *options(heddle, device), "--", "/usr/bin/python3", IN_GUEST, heddle, JOB, "0",
                      fault, plan, timeout=330)
    found = json_of(text, 0)[-1]
    check_transports(found, lambda name, peer: "verbs")
    return found


def lose_one(heddle, losses, device, fault):
    found = run_in_guests(heddle, device, fault)
    # Activations of 48 KiB, and their gradients, between the two stages of a pipeline.
    check(min(found["placed"]["b"], found["placed"]["c"]) > 0, f"bytes carried by devices: {found['placed']}")
    check_losses(found, losses)
    check(found["lost"] == ["c"] and len(found["resumed"]) == 1, found)
    [(seconds, repeated)] = found["resumed"]
    print(f"resumed in {seconds:.2f} s, {repeated} steps repeated")
    # Worker a has all that was lost: the step in flight alone is done again.
    check(repeated <= 1, f"{repeated} steps repeated")


def power_off(heddle, losses, device):
    lose_one(heddle, losses, device, "power_off")


def cut(heddle, losses, device):
    lose_one(heddle, losses, device, "cut")


def sharded(heddle, losses, device):
    """Sums in another order than one worker's: equal but for rounding."""
    found = run_in_guests(heddle, device, "none", SHARDED)
    check(found["lost"] == [], found)
    expected = json.loads(pathlib.Path(losses).read_text(encoding="utf-8"))
    worst = max(abs(found["losses"][step] - loss) / loss for step, loss in expected.items() if int(step) <= 20)
    print(f"worst relative difference of a loss in 20 steps: {worst:.1e}")
    check(worst <= 1e-5, f"losses are {worst:.1e} away from those of a run on this machine")


def mixed(heddle, losses, device):
    """Verbs between the guests, TCP to the third worker, which is on the machine: one group."""
    with tempfile.TemporaryDirectory(prefix="heddle-test-") as folder:
        out = pathlib.Path(folder, "vm")
        command = [VM, "--guests", 2, "--host", "--out", out, *options(heddle, device), "--", "/usr/bin/python3",
                   IN_GUEST, heddle, JOB, "host", "none", PLAN]
        with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL) as guests:
            try:
                wait_until(lambda: (out / "go").exists() or guests.poll() is not None, 60, "the guests")
                if guests.poll() == UNAVAILABLE:
                    raise SystemExit(UNAVAILABLE)
                (out / "job").mkdir()
                os.environ["HEDDLE_CACHE"] = ""
                found = Lead(heddle, JOB, PLAN, out / "job", HOST).lead("c", "none")
                check(guests.wait(timeout=60) == 0, f"the guests' exit code is {guests.returncode}")
            finally:
                guests.terminate()
    check_transports(found, lambda name, peer: "tcp" if "c" in (name, peer) else "verbs")
    check(found["lost"] == [], found)
    check_losses(found, losses)


run_check(globals())
