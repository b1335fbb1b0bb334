"""Saves into an object store that is not ours, over a network that fails, by processes that die.

A save is run (checkpoint_saver, saver_main.cc) against moto, an independent implementation of S3; boto3 looks at what
it left, and brings in what it must read. After every failure: the save said so in one line, the checkpoints before are
whole, and the next save works.

Usage: object_store_test.py CHECKPOINT_SAVER BUILD_FOLDER [TEST…]: all without names. Exit code 77: skipped
(tests/support/object_store.py).
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import object_store  # pylint: disable=wrong-import-position,import-error
import processes  # pylint: disable=wrong-import-position,import-error
from seeds import seed  # pylint: disable=wrong-import-position,import-error

SAVER = os.path.abspath(sys.argv[1])
URL = f"s3://{object_store.BUCKET}"
SECONDS_MAX = 120
LARGE = 1000  # Steps from here on are saved in parts.


def run(*words, **environment):
    result = subprocess.run([SAVER, *map(str, words)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
                            stdin=subprocess.DEVNULL, env=dict(os.environ, **environment))
    assert object_store.SECRET not in result.stdout + result.stderr, "a secret was printed"
    return result


def save(root, step, generation=1, **environment):
    result = run("save", root, step, generation, **environment)
    assert result.returncode == 0, f"step {step} at {root}: {result.stderr}"


def refused(root, step, *, expected, generation=1, **environment):
    """The save fails in one line with these words."""
    result = run("save", root, step, generation, **environment)
    assert result.returncode == 1, f"{result.returncode}: {result.stdout}{result.stderr}"
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for words in expected:
        assert words in result.stderr, f"'{words}' is not in: {result.stderr}"


def check(root):
    """The steps that are there; all of them are whole."""
    result = run("check", root)
    assert result.returncode == 0, f"{root}: {result.stdout}{result.stderr}"
    return [int(line) for line in result.stdout.split()]


def check_objects(store, prefix):
    """Each object belongs to a checkpoint whose manifest lists it with its size; nothing was left behind."""
    sizes = store.keys(prefix + "/")
    known = {f"{prefix}/.generation"}
    for key in [key for key in sizes if key.endswith("/MANIFEST.json")]:
        folder = key.rsplit("/", 1)[0]
        known.add(key)
        for file in json.loads(store.get(key))["files"]:
            assert sizes[f"{folder}/{file['name']}"] == file["bytes"], file
            known.add(f"{folder}/{file['name']}")
    assert set(sizes) == known, set(sizes) ^ known
    assert not store.uploads(), store.uploads()


def test_round_trip(store, folder):
    """What we wrote is what boto3 reads; what boto3 wrote is what we read."""
    root = f"{URL}/round"
    for step in (1, 2, 3, 4, LARGE):
        save(root, step, AWS_SESSION_TOKEN="a+token/of=one" if step == 2 else "")
    assert check(root) == [3, 4, LARGE]
    check_objects(store, "round")
    assert any("uploadId" in path for _, path in store.proxy.requests), "nothing was sent in parts"
    local = os.path.join(folder, "downloaded")
    store.download("round", local)
    assert check(local) == [3, 4, LARGE]
    save(local, 5)
    store.upload(local, "brought")
    assert check(f"{URL}/brought") == [4, 5, LARGE]
    save(f"{URL}/brought", 6)
    assert check(f"{URL}/brought") == [5, 6, LARGE]
    assert not [name for name in os.listdir(folder) if name.startswith("heddle-spool")], "a spool folder stayed"


def test_bad_network(store, dice):
    """Faults that pass cost time, and nothing else."""
    root = f"{URL}/network"
    save(root, 1)
    passing = ["slow_down", "drop", "drop_body", "shorter"]
    for step in (2, 3, LARGE):
        store.proxy.fault = object_store.sometimes(passing, 0.25, dice.random())
        save(root, step)
    assert check(root) == [2, 3, LARGE]
    store.proxy.fault = lambda *_: None
    assert check(root) == [2, 3, LARGE]
    check_objects(store, "network")


def test_lasting_faults(store):
    """Faults that stay end a save in bounded time, in one line; the checkpoint before stays."""
    root = f"{URL}/lasting"
    save(root, 1)
    quick = {"HEDDLE_STORE_TIMEOUT": "3"}
    for fault, expected in {
            "slow_down": ["HTTP 503 SlowDown", "attempt", "lasting/"],
            "forbidden": ["HTTP 403 AccessDenied", "AWS_ACCESS_KEY_ID", "lasting/"],
            "drop": ["lasting/", "attempt"],
            "hang": ["lasting/"]}.items():
        for what in (lambda method, path, body, f=fault: f,
                     lambda method, path, body, f=fault: f if method == "PUT" and ".h5" in path else None,
                     lambda method, path, body, f=fault: f if method == "PUT" and "MANIFEST" in path else None):
            store.proxy.fault = what
            refused(root, 2, expected=expected, **quick)
            store.proxy.fault = lambda *_: None
            assert check(root) == [1], fault
            check_objects(store, "lasting")
    result = run("check", f"{URL}/lasting", AWS_ENDPOINT_URL="http://127.0.0.1:9", **quick)
    assert result.returncode == 3 and "127.0.0.1:9" in result.stderr, result.stderr
    result = run("check", "s3://no-such-bucket/x")
    assert result.returncode == 3 and "NoSuchBucket" in result.stderr, result.stderr
    save(root, 2)
    assert check(root) == [1, 2]


def test_corruption(store):
    """A bit that changes on its way is found, there and back."""
    root = f"{URL}/corruption"
    save(root, 1)
    for step in (2, LARGE):
        store.proxy.fault = (
            lambda method, path, body: "corrupt_up" if method == "PUT" and ".h5" in path and len(body) > 9 else None)
        refused(root, step, expected=["other bytes arrived"])
        store.proxy.fault = lambda *_: None
        assert check(root) == [1]
    for name in (".h5", "MANIFEST"):
        store.proxy.fault = lambda method, path, body, n=name: "corrupt_down" if method == "GET" and n in path else None
        result = run("check", root)
        assert result.returncode == 3 and "DATA_LOSS" in result.stderr, result.stderr
        store.proxy.fault = lambda *_: None
    assert check(root) == [1]
    key = next(key for key in store.keys("corruption/") if key.endswith(".h5"))
    good = store.get(key)
    for bad in (object_store.flipped(good), good[:-1], b""):
        store.put(key, bad)
        assert run("check", root).returncode == 3
    store.put(key, good)
    assert check(root) == [1]


def test_generations(store):
    """An old generation commits nothing; a newer one replaces its step; a store without conditions is refused."""
    root = f"{URL}/generations"
    save(root, 1, generation=5)
    refused(root, 2, generation=3, expected=["generation 3 is over"])
    assert check(root) == [1]
    save(root, 1, generation=6)
    assert check(root) == [1]
    check_objects(store, "generations")
    assert json.loads(store.get("generations/step-00000001/MANIFEST.json"))["generation"] == 6
    store.proxy.fault = lambda method, path, body: "unconditional"
    refused(root, 2, generation=7, expected=["conditional writes"])
    store.proxy.fault = lambda *_: None
    assert check(root) == [1]


def test_race(store):
    """Two generations commit the same step at once: the newer one's stays, whoever was quicker."""
    for round_ in range(4):
        root = f"{URL}/race-{round_}"
        savers = [subprocess.Popen([SAVER, "save", root, "1", str(generation)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=processes.tied())
                  for generation in (8, 9)]
        outputs = [saver.communicate(timeout=SECONDS_MAX) for saver in savers]
        if savers[1].returncode == 0:
            assert json.loads(store.get(f"race-{round_}/step-00000001/MANIFEST.json"))["generation"] == 9, outputs
        for saver, (_, errors) in zip(savers, outputs):
            # Each begins as a job does, and removes what it takes for a dead generation's.
            assert saver.returncode == 0 or re.search("is over|is missing|NOT_FOUND", errors), errors
        assert check(root) == [1] or all(saver.returncode for saver in savers)


def test_kills(store, dice):
    """A process that is killed leaves no half checkpoint, and what it left is cleaned up."""
    root = f"{URL}/kills"
    save(root, 1)
    begun = time.monotonic()
    save(root, LARGE)
    usual = time.monotonic() - begun
    steps = [1, LARGE]
    for step in range(LARGE + 1, LARGE + 9):
        saver = subprocess.Popen([SAVER, "save", root, str(step), "1"], stdout=subprocess.PIPE, text=True,
                                 preexec_fn=processes.tied())
        time.sleep(dice.random() * usual)
        saver.send_signal(signal.SIGKILL)
        committed = "committed" in saver.communicate(timeout=SECONDS_MAX)[0]
        store.proxy.settle()  # A request that the dead process has sent may still be carried out.
        found = check(root)
        whole = sorted(steps + [step])[-3:]
        assert found in ([whole] if committed else [steps, steps + [step], whole, steps[-3:]]), (found, steps, step)
        check_objects(store, "kills")
        steps = found
    save(root, 2 * LARGE)
    assert check(root) == sorted(steps + [2 * LARGE])[-3:]


def main():
    object_store.require(os.path.abspath(sys.argv[2]))
    dice = random.Random(seed())
    with tempfile.TemporaryDirectory(prefix="heddle-test-") as folder, object_store.Store() as store:
        os.environ["TMPDIR"] = folder
        for test, arguments in ((test_round_trip, (store, folder)), (test_bad_network, (store, dice)),
                                (test_lasting_faults, (store,)), (test_corruption, (store,)),
                                (test_generations, (store,)), (test_race, (store,)), (test_kills, (store, dice))):
            if sys.argv[3:] and test.__name__ not in sys.argv[3:]:
                continue
            begun = time.monotonic()
            test(*arguments)
            seconds = time.monotonic() - begun
            print(f"{test.__name__}: {seconds:.1f} s, {len(store.proxy.requests)} requests", flush=True)
            store.proxy.requests.clear()


if __name__ == "__main__":
    main()
