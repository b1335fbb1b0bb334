"""A group of collectives_bench processes and what they measured."""
import os
import shutil
import subprocess
import tempfile
import time

from support.heddle import BINARY, Failure, last_line

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(BINARY)), "benchmarks", "collectives", "collectives_bench")


def run(folder, places, media, tasks, timeout=240):
    """Runs `tasks` among one worker a place (command prefix, host): [(task, [seconds…], bytes sent)]."""
    if not os.path.exists(PROGRAM):
        raise Failure(f"{PROGRAM} is not there: build the target heddle_benchmarks")
    os.makedirs(folder, exist_ok=True)
    meeting = tempfile.mkdtemp(dir=folder)
    workers = []
    try:
        for rank, (prefix, host) in enumerate(places):
            workers.append(subprocess.Popen(
                [*prefix, PROGRAM, str(rank), str(len(places)), meeting, host, media, *tasks],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True))
        deadline = time.monotonic() + timeout
        outputs = [worker.communicate(timeout=max(deadline - time.monotonic(), 1)) for worker in workers]
    except subprocess.TimeoutExpired as error:
        raise Failure(f"collectives_bench: no end within {timeout} s") from error
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
        shutil.rmtree(meeting, ignore_errors=True)
    for rank, worker in enumerate(workers):
        if worker.returncode != 0:
            raise Failure(f"collectives_bench {rank}: {last_line(outputs[rank][1])}")
    measured = []
    for line in outputs[0][0].splitlines():
        task, *numbers = line.split()
        measured.append((task, [float(number) for number in numbers[:-1]], int(numbers[-1])))
    return measured
