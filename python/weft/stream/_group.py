# SPDX-License-Identifier: Apache-2.0
"""A stream's job that a framework sets up in three steps: what each process says, who is who, and everybody joins.

    every process   offer()  ──► {"job", "controller", "key"}: where it would start a controller, and a key that was just made
    the framework   carries what all said to all; the first trainer's offer is the job's
    first trainer   join(its own offer): starts the controller at the address that it kept free, in a process of its own
    all others      join(that offer): write the key to a file that nobody else reads, open, and remove it

The key goes the way that the framework's metadata goes (Ray's actor calls): who reads that can join. It is in no log, and in a
file only while a process of this user opens it.
"""
from __future__ import annotations

import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
from typing import Any, Optional, Union

from weft import ConfigError, Controller, StateError, programs
from weft.stream._base import start_controller
from weft.stream._receiver import Receiver
from weft.stream._sender import Sender

_GRACE_S = 2.0  # for the others to leave a job, before its controller is stopped
Offer = dict[str, Any]


def host_address() -> str:
    """Of this host, as other hosts of the job reach it: Ray's word, where Ray runs."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return str(ray.util.get_node_ip_address()).strip("[]")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel says which address it would have
            return str(probe.getsockname()[0])
        except OSError:  # no network at all
            return "127.0.0.1"


class _Place:
    """An address that is kept free for a controller, and a key for its job."""

    def __init__(self, host: str):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._kept = socket.socket(family, socket.SOCK_STREAM)
        # bound and not listening: nobody is given the port, and the controller, which sets the same option, can have it
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._kept.bind((host, 0))
        except OSError as error:
            self._kept.close()
            raise ConfigError(f"{host!r} is to be this host's address in the job, and no port of it can be had: {error}; say "
                              "another one (option host)") from error
        port = self._kept.getsockname()[1]
        self.offer: Offer = {"job": secrets.token_hex(8), "key": _new_key(),
                             "controller": f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"}

    def start(self, world: int, receivers: int, **options: Any) -> Controller:
        try:
            with _KeyFile(self.offer["key"]) as key_file:
                return start_controller(world, receivers, bind=self.offer["controller"], key_file=key_file, **options)
        finally:
            self.close()

    def close(self) -> None:
        self._kept.close()


class _KeyFile:
    """A key in a file of this user alone, for as long as something opens it."""

    def __init__(self, key: Optional[str]):
        self._key = key
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None

    def __enter__(self) -> str:
        self._folder = tempfile.TemporaryDirectory(prefix="key-")  # 0700
        file = pathlib.Path(self._folder.name) / "job.key"
        if self._key is not None:
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as writes:
                writes.write(self._key)
        return str(file)

    def __exit__(self, *_: Any) -> None:
        assert self._folder is not None
        self._folder.cleanup()


def _new_key() -> str:
    with _KeyFile(None) as file:
        made = subprocess.run([programs.path("weft"), "key", "make", "--quiet", file], capture_output=True, text=True, timeout=30)
        if made.returncode:
            raise ConfigError(f"the job's key cannot be made: {made.stderr.strip()}")
        return pathlib.Path(file).read_text()


class Group:
    """This process's part in such a job: an end of it, and on the first trainer its controller.

    Args:
        host: this host's address in the job. None: ``host_address``.
        controller_options: as Controller's.
        options: of Sender and Receiver, on all alike.
    """

    def __init__(self, *, host: Optional[str] = None, controller_options: Optional[dict[str, Any]] = None, **options: Any):
        self._host, self._options, self._controller_options = host, options, controller_options or {}
        self._place: Optional[_Place] = None
        self._controller: Optional[Controller] = None
        self._end: Union[Sender, Receiver, None] = None
        self.joined: Optional[tuple[str, str, int, int, int]] = None  # job, role, rank, world, receivers

    def offer(self) -> Offer:
        """The same until it is taken."""
        if self._place is None:
            self._place = _Place(self._host or host_address())
        return dict(self._place.offer)

    @property
    def standing(self) -> Optional[tuple[str, str, int, int, int]]:
        """``joined``, where the job still goes well as far as is known here."""
        return self.joined if self._end is not None and self._end.state == "joined" else None

    @property
    def sender(self) -> Sender:
        if not isinstance(self._end, Sender):
            raise StateError(self._not("a trainer"))
        return self._end

    @property
    def receiver(self) -> Receiver:
        if not isinstance(self._end, Receiver):
            raise StateError(self._not("an engine's rank"))
        return self._end

    def _not(self, role: str) -> str:
        if self.joined is not None and self._end is not None:
            return f"this process is {self.joined[1]} {self.joined[2]} of the job, and {role} is needed for that"
        return f"this process is in no job: {role} joins one first (prepare, then init_process_group), and again after finalize"

    def join(self, offer: Offer, role: str, rank: int, world: int, receivers: int) -> None:
        """Waits for all.

        Args:
            offer: the first trainer's, on everyone.
            role: "trainer" or "receiver".
        """
        self.close()
        place = self._place if self._place is not None and self._place.offer["job"] == offer["job"] else None
        if role == "trainer" and rank == 0:
            if place is None:
                raise StateError("trainer 0 starts the controller, and the offer that was taken is not its own: its prepare must "
                                 "come before, and its metadata must be the first")
            self._place = None
            self._controller = place.start(world, receivers, **self._controller_options)
        elif self._place is not None:
            self._place.close()
            self._place = None
        try:
            with _KeyFile(offer["key"]) as key_file:
                make = Sender if role == "trainer" else Receiver
                self._end = make(offer["controller"], rank, world, receivers=receivers, key_file=key_file, **self._options)
            self.joined = offer["job"], role, rank, world, receivers
            self._end.join()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leaves the job, if there is one. Twice is once."""
        end, controller, self._end, self._controller, self.joined = self._end, self._controller, None, None, None
        try:
            if end is not None:
                end.close()
        finally:
            if controller is not None:
                controller.end(_GRACE_S)
