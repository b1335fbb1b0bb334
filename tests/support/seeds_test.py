"""Which seed a test in Python takes, and what it says when that is none."""
import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def asked(**settings):
    """A process that asks twice: its exit code, what it says, and its complaints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_TEST_")}
    done = subprocess.run([sys.executable, "-c", "import seeds; print(seeds.seed() == seeds.seed())"], cwd=FOLDER,
                          env=dict(environment, **settings), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def takes(number, **settings):
    assert asked(**settings) == (0, f"HEDDLE_TEST_SEED={number}\nTrue\n", ""), asked(**settings)


takes(7, HEDDLE_TEST_SEED="7")
takes(0, HEDDLE_TEST_SEED="0", HEDDLE_TEST_DEFAULT_SEED="8")
takes(8, HEDDLE_TEST_DEFAULT_SEED="8")
takes(8, HEDDLE_TEST_SEED="", HEDDLE_TEST_DEFAULT_SEED="8")
takes(2**64 - 1, HEDDLE_TEST_SEED=str(2**64 - 1))
assert asked() != asked(), "without a setting two processes have two seeds"
for name in ("HEDDLE_TEST_SEED", "HEDDLE_TEST_DEFAULT_SEED"):
    for text in ("x", "-1", "1.5", "1 2", str(2**64), "9" * 40):
        assert asked(**{name: text}) == (2, "", f"{name}={text}: expected a whole number\n"), asked(**{name: text})
