"""Processes that answer lines: one that dies or hangs is named, and the next question finds another."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.zoo.generated.seeds import DEVICES, devices_of, name_of, seed_of
from benchmarks.zoo.generated.worker import Worker, WorkerDiedError

PROGRAM = """
import os, sys, time
for line in sys.stdin:
    if line == "die\\n":
        print("out of luck", file=sys.stderr)
        os._exit(3)
    if line == "hang\\n":
        time.sleep(60)
    print(os.getpid(), line.strip(), flush=True)
"""


def worker(patience: float = 20.0, most: int = 100) -> Worker:
    return Worker((sys.executable, "-c", PROGRAM), dict(os.environ), patience, most)


def test_a_process_that_dies_is_named_and_replaced() -> None:
    asked = worker()
    first = asked.ask("a").split()
    assert first[1] == "a"
    assert asked.ask("b").split() == [first[0], "b"]
    with pytest.raises(WorkerDiedError, match=r"ended \(exit code 3\): out of luck"):
        asked.ask("die")
    assert asked.ask("c").split()[0] != first[0]
    asked.close()


def test_a_process_that_does_not_answer_is_ended() -> None:
    asked = worker(patience=1.0)
    with pytest.raises(WorkerDiedError, match="no answer within 1 s"):
        asked.ask("hang")
    asked.close()


def test_a_process_is_replaced_when_it_has_answered_often_enough() -> None:
    asked = worker(most=2)
    answers = [asked.ask("a") for _ in range(4)]
    asked.close()
    assert answers[0] == answers[1] != answers[2] == answers[3]


def test_a_number_says_its_name_and_devices() -> None:
    assert seed_of(name_of(17)) == 17
    assert seed_of("random_generators") is None
    assert {devices_of(seed) for seed in range(200)} == set(DEVICES)
