# SPDX-License-Identifier: Apache-2.0
"""A stranger's tools: libzmq without any of weft's care, and ZMTP 3 by hand (ZeroMQ RFC 23) for what libzmq
would not send, such as a routing id that begins with 0."""
import contextlib
import ctypes
import ctypes.util
import socket
import struct
import threading

ZMQ = ctypes.CDLL(ctypes.util.find_library("zmq") or "libzmq.so.5", use_errno=True)
ZMQ.zmq_ctx_new.restype = ZMQ.zmq_socket.restype = ctypes.c_void_p
for name in ("zmq_setsockopt", "zmq_connect", "zmq_send", "zmq_recv", "zmq_close", "zmq_ctx_term", "zmq_socket"):
    getattr(ZMQ, name).argtypes = {
        "zmq_setsockopt": [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t],
        "zmq_connect": [ctypes.c_void_p, ctypes.c_char_p],
        "zmq_send": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
        "zmq_recv": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
        "zmq_close": [ctypes.c_void_p], "zmq_ctx_term": [ctypes.c_void_p],
        "zmq_socket": [ctypes.c_void_p, ctypes.c_int]}[name]
DEALER, ROUTING_ID, LINGER, RCVTIMEO, PUBLICKEY, SECRETKEY, SERVERKEY = 5, 5, 17, 27, 48, 49, 50


class Dealer:
    """A DEALER socket: with `curve` (server key, public key, secret key), or without."""

    def __init__(self, address, identity=None, curve=None, wait_ms=1000):
        self.context = ZMQ.zmq_ctx_new()
        self.socket = ZMQ.zmq_socket(self.context, DEALER)
        self.set(LINGER, struct.pack("i", 0))
        self.set(RCVTIMEO, struct.pack("i", wait_ms))
        if identity:
            self.set(ROUTING_ID, identity)
        for option, key in zip((SERVERKEY, PUBLICKEY, SECRETKEY), curve or ()):
            self.set(option, key)
        assert ZMQ.zmq_connect(self.socket, address.encode()) == 0

    def set(self, option, value):
        assert ZMQ.zmq_setsockopt(self.socket, option, value, len(value)) == 0, ctypes.get_errno()

    def send(self, data):
        return ZMQ.zmq_send(self.socket, data, len(data), 1)

    def receive(self):
        """One frame, or None after wait_ms."""
        room = ctypes.create_string_buffer(1 << 20)
        got = ZMQ.zmq_recv(self.socket, room, len(room), 0)
        return room.raw[:got] if got >= 0 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ZMQ.zmq_close(self.socket)
        ZMQ.zmq_ctx_term(self.context)


def port_of(address):
    return int(address.rsplit(":", 1)[1])


class Wire:
    """ZMTP 3.0 with the NULL mechanism, over a plain socket."""

    def __init__(self, address, identity=b"", wait=2.0):
        self.socket = socket.create_connection(("127.0.0.1", port_of(address)), timeout=wait)
        self.socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31))
        properties = self.property("Socket-Type", b"DEALER") + self.property("Identity", identity)
        command = b"\x05READY" + properties
        self.socket.sendall(b"\x04" + bytes([len(command)]) + command)
        # libzmq loses what comes in one piece with the handshake
        self.said = b""
        while b"READY" not in self.said:
            data = self.read()
            if not data:
                break
            self.said += data

    @staticmethod
    def property(name, value):
        return bytes([len(name)]) + name.encode() + struct.pack(">I", len(value)) + value

    def send(self, data):
        head = b"\x00" + bytes([len(data)]) if len(data) < 256 else b"\x02" + struct.pack(">Q", len(data))
        self.socket.sendall(head + data)

    def read(self):
        """What the other side says, whole frames or not; b"" when it closed, None when it says nothing."""
        try:
            return self.socket.recv(1 << 16)
        except (TimeoutError, socket.timeout):
            return None
        except OSError:
            return b""

    def is_closed(self):
        """The other side has closed, once all it said is read."""
        while True:
            data = self.read()
            if data is None or data == b"":
                return data == b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.socket.close()


class Proxy:
    """Between one worker and the controller, on the worker's way: `each` frame that the worker sends is sent on as
    what `change(frame)` answers, a list of frames; what the controller says is passed on while `reads` is set."""

    def __init__(self, address, change=lambda frame: [frame]):
        self.target, self.change = port_of(address), change
        self.reads = threading.Event()
        self.reads.set()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                worker = self.server.accept()[0]
                controller = socket.socket()
                controller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                controller.connect(("127.0.0.1", self.target))
                threading.Thread(target=self.forward, args=(worker, controller), daemon=True).start()
                threading.Thread(target=self.back, args=(controller, worker), daemon=True).start()

    def forward(self, worker, controller):
        stream = worker.makefile("rb")
        with contextlib.suppress(OSError, EOFError):
            for _ in range(64):  # the greeting comes bit by bit, as the other side answers
                controller.sendall(stream.read(1))
            while True:
                flags = stream.read(1)
                if not flags:
                    raise EOFError
                size = stream.read(8 if flags[0] & 2 else 1)
                body = stream.read(int.from_bytes(size, "big"))
                frames = [body] if flags[0] & 4 else self.change(body)
                for frame in frames:
                    long = len(frame) > 255
                    controller.sendall(bytes([flags[0] & 4 | 2 * long]) + len(frame).to_bytes(8 if long else 1, "big") +
                                       frame)
        for end in (worker, controller):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def back(self, controller, worker):
        with contextlib.suppress(OSError):
            while data := self.passed(controller):
                worker.sendall(data)
        for end in (worker, controller):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def passed(self, controller):
        self.reads.wait()
        return controller.recv(1 << 16)

    def close(self):
        self.server.close()
        self.reads.set()
