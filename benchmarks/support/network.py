"""Two network namespaces joined by one link of a kind."""
import pathlib
import sys

from support.heddle import Failure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))
import namespaces  # pylint: disable=wrong-import-position,import-error

SUBNET = namespaces.subnet(128)


class Network:
    """The two namespaces and the link; nothing of it is left afterwards. `shape`: the arguments of each `tc` that
    shapes what leaves an island, by its number and the name of its interface."""

    def __init__(self, shape):
        self.hosts = [f"{SUBNET}.{island + 1}" for island in range(2)]
        ends = [f"hi{namespaces.TAG}{island}" for island in range(2)]
        command = namespaces.command
        try:
            namespaces.sweep()
            for island in range(2):
                command("ip", "netns", "add", namespaces.space(island))
            command("ip", "link", "add", ends[0], "netns", namespaces.space(0), "type", "veth", "peer", "name", ends[1],
                    "netns", namespaces.space(1))
            for island, (host, end) in enumerate(zip(self.hosts, ends)):
                for words in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", host + "/24", "dev", end],
                              ["ip", "link", "set", end, "up"],
                              *(["tc", *words] for words in shape(island, end))):
                    command(*namespaces.within(island), *words)
        except OSError as error:
            self.remove()
            raise Failure(str(error)) from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    @staticmethod
    def remove():
        for island in range(2):
            namespaces.command("ip", "netns", "delete", namespaces.space(island), check=False)

    def place(self, island):
        return namespaces.within(island), self.hosts[island]
