"""Seeds of randomised tests, as tests/support/seed.h."""
import functools
import os
import random
import re
import sys

SETTINGS = ("HEDDLE_TEST_SEED", "HEDDLE_TEST_DEFAULT_SEED")


@functools.lru_cache(maxsize=None)
def seed():
    """HEDDLE_TEST_SEED where it is set, else HEDDLE_TEST_DEFAULT_SEED, which every entry has; without both a new one at
    every call of the program. Printed with the way to repeat it, once: every call in one process gives the same."""
    given = [(name, os.environ[name]) for name in SETTINGS if os.environ.get(name)]
    for name, text in given[:1]:
        if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) >= 2**64:
            print(f"{name}={text}: expected a whole number", file=sys.stderr)
            sys.exit(2)
    value = int(given[0][1]) if given else random.SystemRandom().randrange(1, 2**31)
    print(f"HEDDLE_TEST_SEED={value}", flush=True)
    return value
