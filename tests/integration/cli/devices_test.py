"""`heddle devices` beside a library in the place of NVML, and a device that cannot be used: every command refuses it
with one line and exit code 2. Usage: devices_test.py HEDDLE FOLDER_OF_THE_LIBRARY [cuda]
With cuda it is a build that drives cards: none is there beside the library's, and CUDA says so when it is to start.
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, PATIENCE, SMOKE, Run, Scratch  # noqa: E402
from harness.served import Cluster, write_job  # noqa: E402
from harness.text_data import prose  # noqa: E402

L4 = "NVIDIA L4,23034,22500"
HAS_CUDA = sys.argv[3:] == ["cuda"]
NO_CUDA = "this build of heddle-engine has no CUDA"
# Device, what there is, and what is said of it.
REFUSALS = [
    ("cuda", {}, "device 'cuda': this machine has no NVIDIA card"),
    ("cuda:7", {"CARDS": L4}, "device 'cuda:7': this machine has 1 NVIDIA card, cuda:0;"),
    ("cuda", {"CARDS": "NVIDIA L4,23034,100"}, "0.1 GiB of its 22.5 GiB of memory are free"),
    ("cuda", {"CARDS": L4, "DRIVER": "470.256.02"}, f"driver 470.256.02 is older than {580 if HAS_CUDA else 525}"),
    ("cuda", {"CARDS": L4, "INIT": "18"}, "does not answer: Driver/library version mismatch"),
    ("cuda", {"CARDS": L4, "HANG": "init"}, "nothing came from libnvidia-ml.so.1 within 1 s"),
    ("cuda:0", {"CARDS": L4, "HANG": "load"}, "does not answer: nothing came from libnvidia-ml.so.1 within 1 s"),
    ("cuda:1", {"CARDS": f"{L4};{L4}", "HANG": "1"}, "cannot use it: it does not answer: nothing came from"),
    ("cuda", {"CARDS": L4, "INIT": "crash"}, "ended the program that asked it (signal 6)"),
    ("cuda:1", {"CARDS": L4 + ";lost"}, "cannot use it: GPU is lost"),
    *([] if HAS_CUDA else [("cuda", {"CARDS": L4}, NO_CUDA)]),
    ("gpu", {}, "expected cpu, cuda, cuda:N or auto, got 'gpu'"),
]


def with_cards(there):
    """The environment with the library, which tells of what is `there`."""
    folders = [os.path.abspath(sys.argv[2]), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    limit = {"HEDDLE_NVML_TIMEOUT": "1"} if "HANG" in there else {}
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders), **limit,
            **{f"FAKE_NVML_{name}": text for name, text in there.items()}}


def run(*arguments, there=None, code=0):
    done = subprocess.run([HEDDLE, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False,
                          stdin=subprocess.DEVNULL, env=with_cards(there or {}))
    assert done.returncode == code, (arguments, done)
    return done


def what_is_shown():
    shown = json.loads(run("devices", "--json").stdout)
    processor = shown["processor"]
    assert processor["cores"] >= 1 and processor["threads"] == 1 and processor["memory_bytes"] > 1 << 28, shown
    assert processor["name"] and processor["instructions"], shown
    assert shown["cards"] == [] and "no NVIDIA card" in shown["cards_reason"] and shown["auto"] == "cpu", shown
    text = run("devices").stdout
    assert "\n* cpu " in text and "\nno card: this machine has no NVIDIA card" in text, text

    there = {"CARDS": f"{L4};lost"}
    shown = json.loads(run("devices", "--json", there=there).stdout)
    first, second = shown["cards"]
    assert first == {"device": "cuda:0", "name": "NVIDIA L4", "uuid": "GPU-1", "memory_bytes": 23034 << 20,
                     "free_bytes": 22500 << 20, "usable": HAS_CUDA, "reason": "" if HAS_CUDA else NO_CUDA,
                     "peer_bytes_per_second": 0, "dma_buf": False, "dma_buf_reason": "libcuda.so.1 is missing",
                     "parts": []}, first
    assert not second["usable"] and "GPU is lost" in second["reason"], second
    auto = "cuda:0" if HAS_CUDA else "cpu"
    assert shown["driver"] == "580.65.06" and shown["auto"] == auto and shown["cards_reason"] == "", shown
    linked = {"CARDS": f"{L4};{L4}", "PEERS": "nvlink 18 6;bus 4 16"}
    shown = json.loads(run("devices", "--json", there=linked).stdout)
    rates = [card["peer_bytes_per_second"] for card in shown["cards"]]
    assert rates == [450_000_000_000, 31_504_000_000], rates
    if HAS_CUDA:
        assert "; reads the other cards at 450 GB/s; " in run("devices", there=linked).stdout
    divided = {"CARDS": "NVIDIA H100,81559,81000|NVIDIA H100 MIG 3g.40gb,40448,40000"}
    [card] = json.loads(run("devices", "--json", there=divided).stdout)["cards"]
    assert card["parts"] == [{"name": "NVIDIA H100 MIG 3g.40gb", "uuid": "MIG-101", "memory_bytes": 40448 << 20,
                              "free_bytes": 40000 << 20}], card
    assert re.search(r"\n +part +NVIDIA H100 MIG 3g.40gb +39.5 GiB +39.1 GiB free; by CUDA_VISIBLE_DEVICES=MIG-101\n",
                     run("devices", there=divided).stdout)

    hangs = json.loads(run("devices", "--json", there={"CARDS": f"{L4};{L4};{L4}", "HANG": "1"}).stdout)
    first, second, third = hangs["cards"]
    assert first["usable"] == HAS_CUDA and first["memory_bytes"] == 23034 << 20, first
    assert "it does not answer: nothing came from" in second["reason"], second
    assert "it was not asked, for cuda:1 does not answer" in third["reason"], third
    hangs = run("devices", there={"CARDS": L4, "HANG": "init"})
    assert "\n* cpu " in hangs.stdout, hangs
    assert "\nno card: the NVIDIA driver does not answer: nothing came from" in hangs.stdout, hangs

    text = run("devices", there=there).stdout
    assert ("\n* cuda:0 " if HAS_CUDA else "\n  cuda:0 ") in text
    assert " 22.5 GiB " in text and "\nNVIDIA driver 580.65.06\n" in text, text


def what_is_refused(folder):
    """Each reason from one command, and the first from all."""
    out = os.path.join(folder, "out")
    for i, (device, there, says) in enumerate(REFUSALS):
        commands = (["train", SMOKE, "--out", out, "--set", f"device={device}"],
                    ["plan", SMOKE, "--set", f"workers=[{{name: a, device: '{device}'}}]"],
                    ["worker", "--coordinator", "127.0.0.1:9", "--device", device],
                    ["ops", "run", SMOKE, "--out", out, "--device", device])
        for command in commands if i == 0 else commands[i % 4:][:1]:
            done = run(*command, there=there, code=2)
            assert done.stdout == "" and not os.path.exists(out), (command, done)
            errors = [line for line in done.stderr.splitlines() if " info " not in line]
            assert len(errors) == 1 and "error: " in errors[0] and says in errors[0], (command, done)


def a_worker_keeps_to_the_job(folder):
    """Which names the device of workers that name none; `--device` of a worker comes first."""
    with Cluster(folder, "served") as cluster:
        cluster.serve()
        cluster.submit(write_job(folder, prose(folder), 6), "device=cuda", "workers=[{name: b}]")
        cluster.worker("a", "--emulate", "speed=1")
        assert cluster.workers.pop("a").wait(PATIENCE) == 2, cluster.errors()
        says = r"device 'cuda:0': CUDA \d+\.\d+ does not start: " if HAS_CUDA else f"device 'cuda': {NO_CUDA}"
        assert re.search(says, cluster.errors()), cluster.errors()
        cluster.worker("b", "--device", "cpu", "--emulate", "speed=1")
        cluster.finish()


def main():
    with Scratch() as folder:
        what_is_shown()
        what_is_refused(folder)
        os.environ.update(with_cards({"CARDS": L4}))
        a_worker_keeps_to_the_job(folder)
        if not HAS_CUDA:
            Run(os.path.join(folder, "auto"), SMOKE, ["device=auto", "steps=6"]).start().finish()


main()
