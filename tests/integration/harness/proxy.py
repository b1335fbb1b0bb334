"""The way to the coordinator, one that a test can freeze, cut or make slow."""
import collections
import selectors
import socket
import threading
import time


class Proxy:
    """Hands on what comes to `address` to `target` (HOST:PORT) and back. `freeze`: bytes wait; `cut`: connections end
    and new ones are refused; `delay`: each byte is late by so many seconds; `mend`: all is as before. One thread;
    everything ends with the `with`."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.frozen = self.is_cut = self.closed = False
        self.late = 0.0
        self.delayed = collections.deque()  # (when it is handed on, from which end, what), in order.
        self.pairs = {}
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.closed = True
        self.thread.join(10)

    def freeze(self):
        with self.lock:
            self.frozen = True

    def cut(self):
        with self.lock:
            self.is_cut = True

    def delay(self, seconds):
        with self.lock:
            self.late = seconds

    def mend(self):
        with self.lock:
            self.frozen = self.is_cut = False
            self.late = 0.0

    def _run(self):
        selector = selectors.DefaultSelector()
        selector.register(self.listener, selectors.EVENT_READ)
        while not self.closed:
            with self.lock:
                frozen, is_cut, late = self.frozen, self.is_cut, self.late
            if is_cut:
                for end in list(self.pairs):
                    self._close(selector, end)
            ready = selector.select(0.02)
            if frozen:
                threading.Event().wait(0.02)
                continue
            for key, _ in ready:
                if key.fileobj is self.listener:
                    self._accept(selector, is_cut)
                elif key.fileobj in self.pairs:
                    self._receive(selector, key.fileobj, late)
            while self.delayed and (late == 0 or self.delayed[0][0] <= time.monotonic()):
                _, end, data = self.delayed.popleft()
                self._send(selector, end, data)
        for end in list(self.pairs):
            self._close(selector, end)
        self.listener.close()

    def _accept(self, selector, is_cut):
        near, _ = self.listener.accept()
        if is_cut:
            near.close()
            return
        host, port = self.target.rsplit(":", 1)
        try:
            far = socket.create_connection((host, int(port)), timeout=60)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.settimeout(60)
            self.pairs[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _receive(self, selector, end, late):
        try:
            data = end.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            selector.unregister(end)  # There is no more to be read.
        if late or self.delayed:
            self.delayed.append((time.monotonic() + late, end, data))
        else:
            self._send(selector, end, data)

    def _send(self, selector, end, data):
        """Nothing: the end was closed, and so is the other one."""
        try:
            if data and end in self.pairs:
                self.pairs[end].sendall(data)
                return
        except OSError:
            pass
        self._close(selector, end)

    def _close(self, selector, end):
        for one in (end, self.pairs.pop(end, None)):
            if one is not None:
                self.pairs.pop(one, None)
                if one.fileno() >= 0:
                    if one in selector.get_map():
                        selector.unregister(one)
                    one.close()
