"""As much of BSON and OP_MSG as this comparison needs, with the standard library alone."""

import socket
import struct
import threading

OP_MSG = 2013


def decode(data, at=0):
    """The document at `at`: a list of (name, type, value), and where it ends."""
    end = at + struct.unpack_from("<i", data, at)[0]
    at += 4
    out = []
    while data[at]:
        kind = data[at]
        stop = data.index(b"\0", at + 1)
        name = data[at + 1 : stop].decode()
        at = stop + 1
        if kind in (0x01, 0x09, 0x11, 0x12):
            form = {0x01: "<d", 0x09: "<q", 0x11: "<Q", 0x12: "<q"}[kind]
            value = struct.unpack_from(form, data, at)[0]
            at += 8
        elif kind == 0x10:
            value = struct.unpack_from("<i", data, at)[0]
            at += 4
        elif kind == 0x02:
            size = struct.unpack_from("<i", data, at)[0]
            value = data[at + 4 : at + 3 + size].decode()
            at += 4 + size
        elif kind in (0x03, 0x04):
            value, at = decode(data, at)
        elif kind == 0x05:
            size = struct.unpack_from("<i", data, at)[0]
            value = (data[at + 4], bytes(data[at + 5 : at + 5 + size]))
            at += 5 + size
        elif kind == 0x07:
            value = bytes(data[at : at + 12])
            at += 12
        elif kind == 0x08:
            value = bool(data[at])
            at += 1
        elif kind == 0x0A:
            value = None
        else:
            raise ValueError(f"BSON type {kind:#x} of field {name} is not known here")
        out.append((name, kind, value))
    return out, end


def encode(fields):
    """A document of str, int, float, bool and dict values."""
    body = b""
    for name, value in fields.items():
        key = name.encode() + b"\0"
        if isinstance(value, bool):
            body += b"\x08" + key + bytes([value])
        elif isinstance(value, int):
            body += b"\x12" + key + struct.pack("<q", value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            body += b"\x02" + key + struct.pack("<i", len(text)) + text
        else:
            body += b"\x03" + key + encode(value)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def get(fields, name):
    """The value of a field, or None."""
    return next((v for n, _, v in fields if n == name), None)


class Client:
    """One connection, one command at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.request = 0

    def exactly(self, n):
        out = b""
        while len(out) < n:
            more = self.socket.recv(n - len(out))
            if not more:
                raise EOFError("the server closed the connection")
            out += more
        return out

    def command(self, db, fields):
        body = encode({**fields, "$db": db})
        self.request += 1
        head = struct.pack("<iiiiI", 21 + len(body), self.request, 0, OP_MSG, 0)
        self.socket.sendall(head + b"\0" + body)
        size = struct.unpack("<i", self.exactly(4))[0]
        reply, _ = decode(self.exactly(size - 4), 17)
        if get(reply, "ok") != 1:
            raise RuntimeError(f"{next(iter(fields))}: {get(reply, 'errmsg')}")
        return reply

    def documents(self, db, collection):
        """All documents, as lists of (name, type, value)."""
        reply = self.command(db, {"find": collection, "batchSize": 1000})
        while True:
            cursor = get(reply, "cursor")
            batch = get(cursor, "firstBatch") or get(cursor, "nextBatch") or []
            yield from (d for _, _, d in batch)
            if get(cursor, "id") == 0:
                return
            more = {"getMore": get(cursor, "id"), "collection": collection}
            reply = self.command(db, more)


class Recorder:
    """A proxy in front of a server that keeps every byte the clients send."""

    def __init__(self, to):
        self.to = to
        self.streams = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = []
            self.streams.append(kept)
            for a, b, keep in ((client, server, kept), (server, client, None)):
                threading.Thread(target=pump, args=(a, b, keep), daemon=True).start()

    def close(self):
        self.listener.close()

    def messages(self):
        """Every command sent: (name, body, sections of kind 1 by name)."""
        for kept in self.streams:
            data = b"".join(kept)
            at = 0
            while at + 16 <= len(data):
                size, _, _, op = struct.unpack_from("<iiii", data, at)
                if op == OP_MSG:
                    yield parse(data[at : at + size])
                at += size


def pump(source, sink, keep):
    try:
        while data := source.recv(65536):
            if keep is not None:
                keep.append(data)
            sink.sendall(data)
    except OSError:
        pass
    for s in (source, sink):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def parse(message):
    flags = struct.unpack_from("<I", message, 16)[0]
    end = len(message) - (4 if flags & 1 else 0)
    at = 20
    body, sections = [], {}
    while at < end:
        kind = message[at]
        at += 1
        if kind == 0:
            body, at = decode(message, at)
            continue
        stop = at + struct.unpack_from("<i", message, at)[0]
        zero = message.index(b"\0", at + 4)
        documents = sections.setdefault(message[at + 4 : zero].decode(), [])
        at = zero + 1
        while at < stop:
            d, at = decode(message, at)
            documents.append(d)
    return (body[0][0] if body else ""), body, sections
