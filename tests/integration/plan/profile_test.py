"""`heddle plan --profile` gives the plan that was made from the measurement itself, the same bytes every time, also for
what a run wrote: the run's own plan. So does `heddle plan` where the machine keeps what it measured. With other memory
it is another plan, and there is none for workers that were measured as something else."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import SMOKE, Run, Scratch, heddle  # noqa: E402

AGAIN = 5


def plan(*options):
    done = heddle("plan", SMOKE, *options, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def main():
    with Scratch() as folder:
        measured = os.path.join(folder, "measured.json")
        first = plan("--save-profile", measured, "--json")
        for _ in range(AGAIN):
            assert plan("--profile", measured, "--json") == first
        for text in plan("--profile", measured), plan("--profile", measured, "--explain"):
            assert "\ninputs: profiles of 20" in text and "; own links of 20" in text, text

        os.environ["HEDDLE_CACHE"] = os.path.join(folder, "cache")
        kept = plan("--json")
        assert plan("--json") == kept, "what is kept gave another plan"
        run = Run(os.path.join(folder, "run"), overrides=["steps=6"])
        run.start()
        run.finish()
        [taken] = [event["plan"] for event in run.events("plan")]
        assert json.loads(plan("--profile", os.path.join(run.folder, "profile.json"), "--json")) == taken

        workers = json.loads(first)["workers"]
        peak = max(json.loads(first)["predicted_peak_bytes"])
        caps = [f"--set=workers.{i}.emulate.memory={peak // 2}B" for i in range(len(workers))]
        tight = json.loads(plan("--profile", measured, "--json", *caps))
        assert max(tight["predicted_peak_bytes"]) <= peak // 2, tight

        other = heddle("plan", SMOKE, "--profile", measured, "--set", "model.hidden_size=128", timeout=300)
        assert other.returncode == 2 and "another model" in other.stderr and other.stderr.count("\n") == 1, other.stderr


main()
