"""The events of a run as they come: each line is read once, however often one asks."""
import collections
import json
import os


class Follower:
    def __init__(self, path):
        self.path = path
        self.begin(None)

    def begin(self, inode):
        self.inode, self.offset = inode, 0
        self.kinds = collections.defaultdict(list)
        self.steps = {}  # The last event of each.
        self.last_step = 0
        self.members = set()  # Of the newest plan; without those that were lost or came again since.
        self.joined = {}  # The newest process of each.

    def read(self):
        """Another coordinator makes it another file with the same content."""
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.offset:
                    self.begin(status.st_ino)
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        for line in text[:whole].splitlines():
            self.note(json.loads(line))

    def note(self, event):
        kind = event["event"]
        self.kinds[kind].append(event)
        if kind == "step":
            self.steps[event["step"]] = event
            self.last_step = event["step"]
        elif kind == "plan":
            self.members = set(event["plan"]["workers"])
        elif kind in ("worker_joined", "worker_lost", "worker_left"):
            self.members.discard(event["worker"])
            if kind == "worker_joined":
                self.joined[event["worker"]] = event["pid"]

    def events(self, kind):
        self.read()
        return self.kinds[kind]

    def step(self):
        self.read()
        return self.last_step

    def event_of(self, step):
        self.read()
        return self.steps.get(step)
