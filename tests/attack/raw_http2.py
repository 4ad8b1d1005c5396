"""HTTP/2 as an attacker speaks it: frames by hand, header blocks by hand, nothing that a library would refuse to send."""
import contextlib
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
FIRST_DYNAMIC = 0xBE  # one byte: the newest entry of the dynamic table


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def integer(value, bits, first=0):
    """RFC 7541, 5.1."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((first | value,))
    out, value = bytearray((first | limit,)), value - limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def literal(name, value, keep=False):
    """A header with its name and value written out; `keep` puts it into the dynamic table."""
    name, value = (text if isinstance(text, bytes) else text.encode() for text in (name, value))
    return bytes((0x40 if keep else 0,)) + integer(len(name), 7) + name + integer(len(value), 7) + value


def request(path, **more):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
              "content-type": "application/grpc", "te": "trailers", **more}
    return b"".join(literal(name, value) for name, value in fields.items())


def varint(value):
    """Protobuf's."""
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def field(number, payload):
    """A length-delimited field of Protobuf."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def message(payload=b""):
    """gRPC's."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Connection:
    """One connection; reads frames as they come and answers pings, so that the server keeps it."""

    def __init__(self, port, settings=b"", source="127.0.0.1", limit_s=30):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=limit_s, source_address=(source, 0))
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        self.buffer = b""
        self.closed = False
        self.first_credit = 65_535  # of a stream, as far as the server has said
        self.credit = {0: 65_535}  # bytes of DATA that may be sent, by stream; 0: on the connection

    def send(self, data):
        """False: the server closed the connection."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            self.closed = True
            return False

    def frames(self, until=lambda kind, flags, stream, payload: False, limit_s=30):
        """Frames up to one for which `until` holds, or the end of the connection, or of the time."""
        found = []
        self.socket.settimeout(limit_s)
        while True:
            while len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) < 9 + size:
                    break
                kind, flags = self.buffer[3], self.buffer[4]
                stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
                payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
                if kind == PING and not flags & ACK:
                    self.send(frame(PING, ACK, 0, payload))
                if kind == SETTINGS and not flags & ACK:
                    self.send(frame(SETTINGS, ACK, 0))
                found.append((kind, flags, stream, payload))
                if until(*found[-1]):
                    return found
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                return found
            except OSError:
                data = b""
            if not data:
                self.closed = True
                return found
            self.buffer += data

    def ends(self, stream, limit_s=30):
        """Whether the server ends this stream, by trailers or a reset."""
        def is_end(kind, flags, number, _):
            return number == stream and (kind == RST_STREAM or (kind in (HEADERS, DATA) and bool(flags & END_STREAM)))
        return any(is_end(*one) for one in self.frames(is_end, limit_s)) or self.closed

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
