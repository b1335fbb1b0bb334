"""Network namespaces for tests and benchmarks: what they are called, and an end for those that a killed one left."""
import os
import re
import subprocess

# Names carry the process that made them. A link's name has at most 15 characters.
TAG = f"{os.getpid():07d}"
LINKS = "h[bvwi]"  # Bridges, the outer and the inner ends of places, links between islands.


def subnet(first):
    """The first three numbers of the addresses of this process; `first`: 64 to 128, one a kind of user."""
    return f"10.{first + os.getpid() % 64}.{os.getpid() // 64 % 256}"


def command(*words, check=True):
    """What it printed. OSError when it fails and `check`."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def space(place):
    return f"heddle-{TAG}-{place}"


def within(place):
    return ["ip", "netns", "exec", space(place)]


def sweep():
    """Removes what processes left that are no more."""
    spaces = [words.split()[0] for words in command("ip", "netns", "list").splitlines() if words]
    links = re.findall(rf"^\d+: ({LINKS}\d{{7}}\w?)[@:]", command("ip", "link", "show"), re.MULTILINE)
    spaces = [name for name in spaces if re.fullmatch(r"heddle-\d{7}-\w", name)]
    for kind, names in (("netns", spaces), ("link", links)):
        for name in names:
            if not os.path.exists(f"/proc/{int(re.search(r'[0-9]{7}', name)[0])}"):
                command("ip", kind, "delete", name, check=False)


class Bridged:
    """A namespace for each of `places` (one character each), joined by a bridge; nothing of it is left afterwards.
    `gate`: the machine has an address on the bridge. `rate`: a queueing discipline for both ways of every link."""

    def __init__(self, places, addresses, gate=None, rate=None):
        self.places, self.addresses = [str(place) for place in places], addresses
        self.bridge = "hb" + TAG
        sweep()
        try:
            command("ip", "link", "add", self.bridge, "type", "bridge")
            if gate:
                command("ip", "address", "add", gate + "/24", "dev", self.bridge)
            command("ip", "link", "set", self.bridge, "up")
            for number, place in enumerate(self.places, 1):
                self.add(place, f"{addresses}.{number}", rate)
        except OSError:
            self.remove()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    @staticmethod
    def outside(place):
        return f"hv{TAG}{place}"

    def address(self, place):
        return f"{self.addresses}.{self.places.index(str(place)) + 1}"

    def add(self, place, address, rate):
        outside, inside = self.outside(place), f"hw{TAG}{place}"
        command("ip", "netns", "add", space(place))
        command("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        command("ip", "link", "set", inside, "netns", space(place))
        command("ip", "link", "set", outside, "master", self.bridge, "up")
        for words in (["link", "set", "lo", "up"], ["address", "add", address + "/24", "dev", inside],
                      ["link", "set", inside, "up"]):
            command(*within(place), "ip", *words)
        if rate:
            command(*within(place), "tc", "qdisc", "add", "dev", inside, "root", *rate)
            command("tc", "qdisc", "add", "dev", outside, "root", *rate)

    def remove(self):
        for place in self.places:
            command("ip", "netns", "delete", space(place), check=False)
            command("ip", "link", "delete", self.outside(place), check=False)
        command("ip", "link", "delete", self.bridge, check=False)

    def unplug(self, place):
        command("ip", "link", "set", self.outside(place), "down")

    def plug(self, place):
        command("ip", "link", "set", self.outside(place), "up")
        # Who asked in vain for its hardware address asks again only after a second; a connection that begins with that
        # wait takes the network for slow, and is slow itself.
        for other in self.places:
            command(*within(other), "ip", "neighbour", "flush", "all")

    def mute(self, place):
        """It hears the others; nothing that it says arrives."""
        self.blackhole("add", place)

    def unmute(self, place):
        self.blackhole("delete", place)

    def blackhole(self, verb, place):
        for other in self.places:
            if other != str(place):
                command(*within(place), "ip", "route", verb, "blackhole", self.address(other))
