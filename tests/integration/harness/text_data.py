"""Text to train on that is always there."""
import os

from harness import REPOSITORY


def prose(folder):
    """Path of English with structure to learn: the licence."""
    path = os.path.join(folder, "prose.txt")
    with open(os.path.join(REPOSITORY, "LICENSE"), encoding="utf-8") as source, \
            open(path, "w", encoding="utf-8") as target:
        target.write(source.read() * 4)
    return path
