"""Workers on cards, which are fake devices (tests/support/card): several on one card divide its memory, those that
leave the card open are spread over all, and one that leaves its device to the job says what that is.
Usage: fake_cards_test.py HEDDLE HEDDLE_ON_FAKE_CARDS FOLDER_OF_NVML"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
del sys.argv[1]
from harness import Run, Scratch, heddle, wait_for  # noqa: E402
from harness.served import ALONE, PATIENT, Cluster, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

CARD = "NVIDIA L4,4096,4000"  # MiB, of which 1 GiB is left for the libraries of one worker.
ALONE_MIB = 4000 - 1024
PART_MIB = (ALONE_MIB - 1536) // 2


def trained(folder, name, job, *overrides):
    return Run(os.path.join(folder, name), job, [PATIENT, *overrides]).start().finish()


def measured(run):
    """By worker, what it measured."""
    with open(os.path.join(run.folder, "profile.json"), encoding="utf-8") as file:
        return {worker["worker"]: worker["measurement"] for worker in json.load(file)["workers"]}


def explained(job, run, *overrides):
    changes = [word for override in overrides for word in ("--set", override)]
    profile = os.path.join(run.folder, "profile.json")
    done = heddle("plan", job, "--profile", profile, "--explain", *changes, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def two_on_one_card(folder, job, losses):
    os.environ["FAKE_NVML_CARDS"] = CARD
    both = ["device=cuda", "workers=[{name: a}, {name: b}]"]
    run = trained(folder, "two", job, *both)
    assert run.losses() == losses, (run.losses(), losses)
    for worker, found in measured(run).items():
        assert found["card"] == "GPU-1" and found["card_bytes"] == ALONE_MIB << 20, (worker, found["card_bytes"])
    text = explained(job, run, *both)
    assert text.count(f"of {PART_MIB}MiB") == 2, text
    text = explained(job, run, "device=cuda", "workers=[{name: a, emulate: {memory: 100MiB}}, {name: b}]")
    assert text.count("of 100MiB") == 1 and text.count(f"of {ALONE_MIB - 1536 - 100}MiB") == 1, text


def three_on_two_cards(folder, job, losses):
    os.environ["FAKE_NVML_CARDS"] = f"{CARD};{CARD}"
    run = trained(folder, "three", job, "device=auto", "workers=[{name: a}, {name: b}, {name: c}]")
    assert run.losses() == losses, (run.losses(), losses)
    cards = {worker: found["card"] for worker, found in measured(run).items()}
    assert cards == {"a": "GPU-1", "b": "GPU-2", "c": "GPU-1"}, cards


def a_worker_says_what_the_job_gives_it(folder, job, losses):
    os.environ["FAKE_NVML_CARDS"] = CARD
    with Cluster(folder, "served") as cluster:
        cluster.serve()
        cluster.submit(job, PATIENT, "device=auto", "guarantee=plan-invariant", "workers=[{name: a}, {name: b}]")
        cluster.worker("a", "--device", "cuda:0")
        wait_for("worker a", lambda: cluster.status()["workers"])
        cluster.worker("c", "--device", "cpu")
        assert cluster.workers.pop("c").wait(60) == 2
        assert "c computes unlike" in cluster.errors(), cluster.errors()
        cluster.worker("b")
        wait_for("a step", lambda: cluster.run.step() or cluster.finished())
        cluster.finish()
        assert cluster.run.losses() == losses, (cluster.run.losses(), losses)
        guarantees = [event["guarantee"] for event in cluster.run.events("guarantee")]
        assert guarantees == ["plan-invariant"], guarantees


def main():
    os.environ["LD_LIBRARY_PATH"] = os.path.abspath(sys.argv[2])
    with Scratch() as folder:
        job = write_job(folder, prose(folder), 6)
        losses = trained(folder, "processor", job, ALONE).losses()
        two_on_one_card(folder, job, losses)
        three_on_two_cards(folder, job, losses)
        a_worker_says_what_the_job_gives_it(folder, job, losses)


main()
