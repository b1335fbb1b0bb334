"""The wall clock of one process, as tests/support/clock_faults.cc lets it be off, and how long it took to be seen."""
import mmap
import struct


class WallClock:
    """Shared with the process that HEDDLE_CLOCK_FILE tells of it."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(24))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 24)

    def jump(self, seconds):
        """It is off by so many seconds from now on."""
        self.memory[:8] = struct.pack("q", round(seconds * 1e9))

    def seen(self):
        """How often the process was given a time that was off, or had a wait moved by a jump."""
        seen, moved = struct.unpack("qq", self.memory[8:24])
        return seen + moved
