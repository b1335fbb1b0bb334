"""How much a test does: sizes of random and exhaustive tests by the tier that runs them, as tests/support/tier.h."""
import os
import sys

TIERS = ("quick", "check", "full")
# Whether the programs are built with a sanitizer, which needs memory of its own.
SANITIZED = os.environ.get("HEDDLE_TEST_SANITIZED") == "1"


def tier():
    """The tier that HEDDLE_TEST_TIER names; full without it."""
    name = os.environ.get("HEDDLE_TEST_TIER") or "full"
    if name not in TIERS:
        sys.exit(f"HEDDLE_TEST_TIER={name}: expected one of {', '.join(TIERS)}")
    return name


def scaled(quick, check, full):
    """The value that belongs to the tier. The ctest entry must be SCALED: `full` has to run it again."""
    if os.environ.get("HEDDLE_TEST_SCALED") == "0":
        sys.exit("this test's sizes depend on the tier: register its entry as SCALED")
    return dict(zip(TIERS, (quick, check, full)))[tier()]


def sample(items, chance, quick, check):
    """Of a list that `full` takes whole, so many at random in the other tiers, in their order."""
    count = min(scaled(quick, check, len(items)), len(items))
    return [items[index] for index in sorted(chance.sample(range(len(items)), count))]
