"""Native actions that exchange messages, carried without MPI: by functions that native code calls as it calls MPI's."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collectives.communicator.actions.array_actions import Exchange, Message
from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.actions.shared_actions import CollectiveProgram
from runtime.cpu.collective.collective_engine import native_collective_engine

REFUSED = 17
"""The code of an error."""


def _handles(count: int, requests: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(requests))


@dataclass
class Post:
    """Messages under way between members, and the requests that everybody has made; a handle is a request's number."""

    mail: dict[tuple[int, int], deque[np.ndarray]] = field(default_factory=dict)
    requests: list[tuple[int, int, np.ndarray]] = field(default_factory=list)
    refuses: bool = False

    def __post_init__(self) -> None:
        word, pointer = ctypes.c_int, ctypes.c_void_p
        self._start = ctypes.CFUNCTYPE(word, word, pointer)(self._start_all)
        self._test = ctypes.CFUNCTYPE(word, word, pointer, ctypes.POINTER(word), pointer)(
            self._test_all
        )
        self.start_all = ctypes.cast(self._start, pointer).value or 0
        self.test_all = ctypes.cast(self._test, pointer).value or 0

    def preparing(self, member: int) -> Callable[[Exchange], PostedMessages]:
        """``prepare`` for ``member``."""
        return lambda exchange: PostedMessages(self, member, exchange)

    def add(self, source: int, target: int, messages: Sequence[Message]) -> list[int]:
        """Requests between two members, of which one is -1: whoever a message names."""
        for other, array in messages:
            assert array.flags.c_contiguous
            ends = (other, target) if source < 0 else (source, other)
            self.requests.append((*ends, array.reshape(-1).view(np.uint8)))
        first = len(self.requests) - len(messages)
        return list(range(first, len(self.requests)))

    def _start_all(self, count: int, requests: int) -> int:
        if self.refuses:
            return REFUSED
        for handle in _handles(count, requests):
            if handle < 0:  # to be sent
                source, target, array = self.requests[-handle - 1]
                self.mail.setdefault((source, target), deque()).append(array.copy())
        return 0

    def _test_all(self, count: int, requests: int, flag: Any, _: int) -> int:
        if self.refuses:
            return REFUSED
        wanted = [self.requests[handle] for handle in _handles(count, requests) if handle >= 0]
        flag[0] = int(self.have_come(wanted))
        for source, target, array in wanted if flag[0] else ():
            message = self.mail[source, target].popleft()
            assert message.nbytes == array.nbytes
            array[:] = message
        return 0

    def have_come(self, wanted: Sequence[tuple[int, int, np.ndarray]]) -> bool:
        ends = [(source, target) for source, target, _ in wanted]
        return all(len(self.mail.get(one, ())) >= ends.count(one) for one in ends)


class PostedMessages:
    """One exchange of ``member`` (Messages). Handles of what is sent are -1, -2, ..."""

    def __init__(self, post: Post, member: int, exchange: Exchange) -> None:
        self._post = post
        self._receives = post.add(-1, member, exchange.receives)
        sends = [-1 - number for number in post.add(member, -1, exchange.sends)]
        self._handles = np.array([*self._receives, *sends], np.int64)
        self._words = np.zeros(1, np.int64)
        self.start_all, self.test_all = post.start_all, post.test_all
        self.count = len(self._handles)
        self.requests = int(self._handles.ctypes.data)
        self.error = self.statuses = int(self._words.ctypes.data)

    def late(self) -> list[int]:
        requests = [self._post.requests[number] for number in self._receives]
        return [one[0] for one in requests if not self._post.have_come([one])]

    def failure(self) -> str:
        return f"error {self._words[0]}"


def play(
    programs: Sequence[CollectiveProgram],
    runs: int,
    begin: Callable[[int, int], None],
    finish: Callable[[int, int], None],
    choose: Callable[[int], int],
) -> None:
    """``runs`` runs of every member; ``choose`` draws who moves next. ``begin`` and ``finish``: (member, run)."""
    members = native_collective_engine().load(programs)
    looks = [one.advancing(0) for one in members]
    done = [0] * len(members)
    running = [False] * len(members)
    rounds = 0
    ready: list[int] = []
    while left := [member for member, number in enumerate(done) if number < runs]:
        if not ready:
            ready, rounds = left, rounds + 1
            assert rounds < 10_000, "the members wait for each other"
        member = ready.pop(choose(len(ready)))
        if running[member]:
            outcome = looks[member]()
        else:
            begin(member, done[member])
            outcome = members[member].start()
        running[member] = outcome == RunStatus.BLOCKED
        if running[member]:
            assert members[member].missing()
        else:
            assert outcome == RunStatus.COMPLETE
            finish(member, done[member])
            done[member] += 1
