"""As much of HTTP/2 and gRPC as a stranger needs who does not keep their rules: calls with any bytes, messages that
never end. RFC 9113 and RFC 7541, gRPC over HTTP2; headers are sent as literals, what the server says is only counted.
"""
import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4  # A setting.
LARGEST_WINDOW = 2**31 - 1
FRAME = 16384  # Largest payload that every server takes.


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name, value):
    """One header that no table remembers. Both shorter than 127 bytes."""
    name, value = name.encode(), value.encode()
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def call_headers(path):
    return b"".join(literal(*pair) for pair in (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "coordinator.heddle"),
        ("te", "trailers"), ("content-type", "application/grpc")))


def message(payload, said=None):
    """One gRPC message; `said`: the length that it claims."""
    return struct.pack(">BI", 0, len(payload) if said is None else said) + payload


class Http2Error(Exception):
    """The server has closed the connection, or says nothing."""


class Http2:
    """A connection; not for several threads. Everything that waits ends after `patience` seconds with Http2Error."""

    def __init__(self, address, wrap=None, patience=60):
        host, port = address.rsplit(":", 1)
        self.patience = patience
        self.socket = socket.create_connection((host, int(port)), timeout=patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wrap is not None:
            self.socket = wrap(self.socket)
        self.received = b""
        self.next_stream = 1
        self.window = 65535
        self.stream_window = 65535  # A new stream's.
        self.windows = {}
        self.ended = 0
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, LARGEST_WINDOW))
                            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST_WINDOW - 65535)))

    def close(self):
        self.socket.close()

    def fileno(self):
        return self.socket.fileno()

    def begin(self, path):
        """Opens a call; its stream."""
        stream = self.next_stream
        self.next_stream += 2
        self.windows[stream] = self.stream_window
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, call_headers(path)))
        return stream

    def calls(self, path, payloads):
        """Unary calls, all at once, and waits until each has an answer, whatever it is. The payloads must be short."""
        out, before, first = [], self.ended, self.next_stream
        for payload in payloads:
            stream = self.next_stream
            self.next_stream += 2
            data = message(payload)
            self.window -= len(data)
            out.append(frame(HEADERS, END_HEADERS, stream, call_headers(path)) + frame(DATA, END_STREAM, stream, data))
        self.socket.sendall(b"".join(out))
        self.wait(lambda: self.ended - before >= len(payloads) and self.window > 32768)
        assert first < self.next_stream

    def send(self, stream, data):
        """How many of the bytes the server's windows let go."""
        sent = 0
        while sent < len(data):
            size = min(FRAME, len(data) - sent, self.window, self.windows.get(stream, 0))
            if size <= 0:
                break
            self.socket.sendall(frame(DATA, 0, stream, data[sent:sent + size]))
            self.window -= size
            self.windows[stream] -= size
            sent += size
        return sent

    def wait(self, condition):
        until = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > until:
                raise Http2Error("no answer")
            self.look(0.5)

    def look(self, seconds=0.0):
        """Takes what the server has said, or says within so long."""
        if not select.select([self.socket], [], [], seconds)[0] and not getattr(self.socket, "pending", lambda: 0)():
            return
        more = self.socket.recv(1 << 18)
        if not more:
            raise Http2Error("closed")
        self.received += more
        at = 0
        while len(self.received) - at >= 9:
            length = int.from_bytes(self.received[at:at + 3], "big")
            if len(self.received) - at < 9 + length:
                break
            kind, flags = self.received[at + 3], self.received[at + 4]
            stream = int.from_bytes(self.received[at + 5:at + 9], "big") & LARGEST_WINDOW
            self.take(kind, flags, stream, self.received[at + 9:at + 9 + length])
            at += 9 + length
        self.received = self.received[at:]

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == INITIAL_WINDOW_SIZE:
                    for open_stream in self.windows:
                        self.windows[open_stream] += value - self.stream_window
                    self.stream_window = value
            self.socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big") & LARGEST_WINDOW
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        elif kind == GOAWAY:
            raise Http2Error("sent away")
        elif kind == RST_STREAM or kind in (HEADERS, DATA) and flags & END_STREAM:
            self.windows.pop(stream, None)
            self.ended += 1
