"""kill -9 of one of four workers at a random moment: the loss does not notice.

Before step 1, during a save and in the last step are among the moments; vote_test.py has those of the vote.
The tier says how many, 6 in full; or HEDDLE_KILLS (scripts/acceptance runs 20).
"""
import contextlib
import os
import random
import signal

from harness import Run, Scratch, alive, check_same, check_samples, seed, wait_for
from harness.served import ALONE
from tiers import scaled

STEPS = 40
GLOBAL_BATCH = 12
BATCH = f"batch.global={GLOBAL_BATCH}"  # Half of the job's: steps are half as long.
MOMENTS = ("before step 1", "during a save", "in the last step", "random")


def one_kill(folder, number, chance, undisturbed):
    moment = MOMENTS[min(number, len(MOMENTS) - 1)]
    # In `full` the job waits until it is clear that the fourth worker does not come; else it is started again.
    again = moment == "before step 1" and scaled(True, True, False)
    overrides = [BATCH, *(["elastic.restart=true"] if again else [])]
    run = Run(os.path.join(folder, f"kill-{number}"), overrides=overrides).start()
    if moment == "before step 1":
        wait_for("four workers", lambda: len(run.pids()) == 4)
    elif moment == "during a save":
        run.wait_step(10)
    elif moment == "in the last step":
        run.wait_step(STEPS - 1)
    else:
        run.wait_step(chance.randrange(1, STEPS - 2))
    before = run.pids()
    worker = chance.choice(sorted(before))
    killed_after = run.step()
    with contextlib.suppress(ProcessLookupError):  # The job has ended meanwhile.
        os.kill(before[worker], signal.SIGKILL)
    survivors = {name: other for name, other in before.items() if name != worker}
    if moment != "before step 1" and killed_after < STEPS - 2:
        wait_for("a step after the loss", lambda: run.step() > killed_after + 1 or run.process.poll() is not None)
        for name, other in survivors.items():
            assert alive(other) or run.process.poll() is not None, f"survivor {name} did not keep its process"
    run.finish()
    check_same(run, undisturbed, STEPS)
    check_samples(run, STEPS, GLOBAL_BATCH)
    lost = run.events("worker_lost")
    resumed = run.events("resumed")
    print(f"{moment}: killed {worker} after step {killed_after}; lost {[e['worker'] for e in lost]}, "
          f"resumed {[(round(e['seconds'], 2), e['steps_repeated']) for e in resumed]}", flush=True)
    assert [event["worker"] for event in lost] in ([worker], []), lost
    held_elsewhere = not any(event.get("sources", {}).get("checkpoint") for event in run.events("state_moved"))
    for event in resumed:
        if held_elsewhere:
            assert event["steps_repeated"] <= 1, event
    assert lost or killed_after >= STEPS - 10, "nobody missed the killed worker"


def main():
    chance = random.Random(seed())
    with Scratch() as folder:
        # At full speed: neither plan nor speed changes a loss. In `full` four workers of unlike speed say so.
        overrides = [BATCH, *scaled([ALONE], [ALONE], [])]
        reference = Run(os.path.join(folder, "undisturbed"), overrides=overrides).start().finish()
        undisturbed = reference.losses()
        check_samples(reference, STEPS, GLOBAL_BATCH)
        assert undisturbed[STEPS] <= 0.8 * undisturbed[1], "the loss falls by 20 %"
        kills = int(os.environ.get("HEDDLE_KILLS", scaled(1, 1, 6)))
        for number in range(kills) if kills > len(MOMENTS) else chance.sample(range(len(MOMENTS)), kills):
            one_kill(folder, number, chance, undisturbed)


main()
