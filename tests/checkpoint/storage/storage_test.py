"""Storage that fails, and processes that die, at every call of a save.

A save is run (checkpoint_saver, saver_main.cc) with a library that lets the n-th call of a kind fail
(tests/support/storage_faults.cc), for every n until a save makes no such call. After each: a save that failed said
so in one line, the checkpoint before is sound, nothing half-written counts or stays, and the next save works.

Usage: storage_test.py CHECKPOINT_SAVER STORAGE_FAULTS_LIBRARY [STRIDE]
With a stride above 1 only every such n: for sanitizers, whose processes are slow to start. The tiers below full take
few n, and of the faults some at random.
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import tiers  # pylint: disable=wrong-import-position,import-error
from seeds import seed  # pylint: disable=wrong-import-position,import-error

SAVER, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:3])
STRIDE = int(sys.argv[3]) if len(sys.argv) > 3 else 1
SECONDS_MAX = 60
ERRORS = {
    "open": ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EINVAL"),
    "write": ("ENOSPC", "EDQUOT", "EIO"),
    "pwrite": ("ENOSPC", "EDQUOT", "EIO", "EINVAL"),
    "ftruncate": ("EIO",),
    "fsync": ("ENOSPC", "EDQUOT", "EIO"),
    "rename": ("ENOSPC", "EIO", "EROFS"),
    "mkdir": ("ENOSPC", "EROFS"),
}
SURVIVED = {"write": ("short", "EINTR"), "pwrite": ("short", "EINTR")}
DEATHS = ("kill", "killed")
# What is saved into a folder that has step 1: the next step, step 1 again by the next generation, or a state whose
# files have several blocks. One save makes at least so many calls: a test that counts fewer has lost its aim.
LEAST_CALLS = {"open": 4, "write": 1, "pwrite": 3, "ftruncate": 3, "fsync": 6, "rename": 2, "mkdir": 1}
SAVES = {"next": ("2", "2"), "again": ("1", "2"), "large": ("1000", "2")}
KINDS = {"next": LEAST_CALLS, "again": LEAST_CALLS, "large": {"pwrite": 11}}


def run(*words, **faults):
    environment = dict(os.environ, **faults)
    if faults:
        environment["LD_PRELOAD"] = LIBRARY
        # The sanitizer's runtime wants to be the first library.
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return subprocess.run([SAVER, *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
                          stdin=subprocess.DEVNULL, env=environment)


class Case:
    """One save with faults, into a folder that holds the sound step 1."""

    def __init__(self, folder, prepared, save, faults):
        self.root = os.path.join(folder, "checkpoints")
        shutil.copytree(prepared, self.root)
        fired = os.path.join(folder, "fired")
        self.what = f"{save} with {faults}"
        self.save = SAVES[save]
        self.result = run("save", self.root, *self.save, HEDDLE_STORAGE_FOLDER=self.root, HEDDLE_STORAGE_FAULTS=faults,
                          HEDDLE_STORAGE_FIRED=fired)
        self.fired = os.path.exists(fired)
        if self.fired:
            os.unlink(fired)

    def steps(self):
        found = run("check", self.root)
        self.expect(found.returncode == 0, f"the folder is not sound: {found.stderr}")
        return found.stdout.split()

    def expect(self, condition, message):
        assert condition, f"{self.what}: {message}\nexit {self.result.returncode}: {self.result.stderr}"

    def check(self):
        """What must hold after any fault."""
        steps = self.steps()
        self.expect("1" in steps, f"the checkpoint before is gone: {steps}")
        committed = "committed" in self.result.stdout
        self.expect(not committed or self.save[0] in steps, f"committed, but only {steps} are there")
        following = run("save", self.root, "3", "3")
        self.expect(following.returncode == 0, f"the next save fails: {following.stderr}")
        self.expect("3" in self.steps(), "the next save is not there")
        shutil.rmtree(self.root)

    def check_error(self):
        lines = self.result.stderr.splitlines()
        self.expect(self.result.returncode == 1 and len(lines) == 1, "a failed save is one line and exit code 1")
        self.expect(self.root in lines[0], "the line does not say where")
        self.check()

    def check_survived(self):
        self.expect(self.result.returncode == 0, "this is no error")
        self.check()

    def check_death(self):
        self.expect(self.result.returncode == -signal.SIGKILL, "it should have died")
        self.check()


def sweep(folder, prepared, save, chance):
    """Every fault at every call of a save; the number of cases."""
    cases = 0
    for kind, least in KINDS[save].items():
        errors, number = ERRORS[kind], 1
        while True:
            plans = [(f"{kind}:{number}{more}:{error}", Case.check_error) for error in errors for more in ("", "+")]
            plans += [(f"{kind}:{number}:{what}", Case.check_survived) for what in SURVIVED.get(kind, ())]
            plans += [(f"{kind}:{number}:{what}", Case.check_death) for what in DEATHS]
            plans = tiers.sample(plans, chance, 1, 2)
            fired = 0
            for faults, check in plans:
                case = Case(folder, prepared, save, faults)
                fired += case.fired
                if not case.fired:
                    case.expect(case.result.returncode == 0, "without a fault it should work")
                    shutil.rmtree(case.root)
                    break
                # A fault that the program has a way around is no error: a rename that cannot exchange, for example.
                survived = check is Case.check_error and case.result.returncode == 0
                (Case.check_survived if survived else check)(case)
                cases += 1
            if fired == 0:
                break
            number += tiers.scaled(7, 7, STRIDE if save != "large" else 7)
        assert number > least, f"a save makes fewer than {number} calls of {kind}: the test has lost its aim"
        print(f"{save}: {kind}: fewer than {number} calls, with {len(plans)} faults", flush=True)
    return cases


def check_order(folder, prepared, save):
    """What a loss of power may take: whatever no fsync has confirmed. So before the rename that commits, every file and
    the folder itself are synced after their last change, and after it the folder above is, before anybody is told."""
    root, log = os.path.join(folder, "checkpoints"), os.path.join(folder, "log")
    shutil.copytree(prepared, root)
    done = run("save", root, *SAVES[save], HEDDLE_STORAGE_FOLDER=root, HEDDLE_STORAGE_LOG=log)
    assert done.returncode == 0, done.stderr
    with open(log, encoding="utf-8") as lines:
        calls = [line.split() for line in lines]
    os.unlink(log)
    unsynced, committed = set(), False
    for kind, path, *target in calls:
        if kind == "fsync":
            unsynced.discard(path)
            continue
        final = bool(target) and os.path.basename(target[0]).startswith("step-")
        if final:
            inside = {other for other in unsynced if (other + "/").startswith(path + "/")}
            assert not inside, f"{save}: committed before these were on storage: {inside}"
            committed = True
        if kind in ("write", "pwrite", "ftruncate"):
            unsynced.add(path)
        if kind in ("open", "mkdir"):
            unsynced.add(os.path.dirname(path))
        if kind == "rename":
            assert path not in unsynced, f"{save}: {path} was renamed before it was on storage"
            unsynced.update(os.path.dirname(name) for name in (path, target[0]))
    assert committed, f"{save}: no rename to a final name"
    assert root not in unsynced, f"{save}: the last rename is not on storage"
    shutil.rmtree(root)
    print(f"{save}: {len(calls)} calls, everything synced in order", flush=True)


def check_no_exchange(folder, prepared):
    """Where the file system cannot exchange two folders, and a later rename fails too, the first save of the step is
    still there."""
    for first in range(1, 5):
        for second in (first + 1, first + 2):
            Case(folder, prepared, "again", f"rename:{first}:EINVAL,rename:{second}:EIO").check()


def main():
    cases = 0
    chance = random.Random(seed())
    with tempfile.TemporaryDirectory(prefix="heddle-storage-") as folder:
        prepared = os.path.join(folder, "prepared")
        first = run("save", prepared, "1", "1")
        assert first.returncode == 0, first.stderr
        for save in SAVES:
            check_order(folder, prepared, save)
            cases += sweep(folder, prepared, save, chance)
        check_no_exchange(folder, prepared)
    print(f"{cases} saves with a fault")


main()
