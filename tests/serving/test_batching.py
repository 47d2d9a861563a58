"""Samples are answered once each, in batches of what is waiting."""

import threading
from types import SimpleNamespace

import pytest

from train_bench.serving.batching import Batching, InlineBatcher, QueueBatcher


class Answers:
    """What was answered together, and what LoadGen would have got."""

    def __init__(self, hold=0):
        self.batches, self.given = [], {}
        self.begun, self.gate = threading.Event(), threading.Event()
        if not hold:
            self.gate.set()

    def answer(self, indices):
        self.begun.set()
        assert self.gate.wait(60)
        self.batches.append([*indices])
        return [str(index).encode() for index in indices]

    def complete(self, ids, answers):
        self.given |= zip(ids, answers, strict=True)


def samples(*numbers):
    return [SimpleNamespace(id=100 + number, index=number) for number in numbers]


def batcher(answers, **policy):
    made = QueueBatcher(Batching(**policy), answers.answer, answers.complete)
    made.start()
    return made


@pytest.mark.parametrize("largest", [1, 3, 32])
def test_every_sample_gets_its_answer_in_batches_of_at_most_so_many(largest):
    answers = Answers()
    made = batcher(answers, max_batch_size=largest)
    made.issue(samples(*range(10)))
    made.issue(samples(10))
    made.close()
    assert answers.given == {100 + number: str(number).encode() for number in range(11)}
    assert max(map(len, answers.batches)) <= largest
    assert made.answered == 11
    assert made.processor_seconds > 0


def test_samples_that_wait_during_an_answer_are_answered_together():
    answers = Answers(hold=1)
    made = batcher(answers)
    made.issue(samples(0))
    assert answers.begun.wait(60)
    for number in range(1, 5):
        made.issue(samples(number))
    answers.gate.set()
    made.close()
    assert answers.batches == [[0], [1, 2, 3, 4]]


def test_a_window_waits_for_a_full_batch_and_no_longer():
    answers = Answers()
    made = batcher(answers, max_batch_size=3, window_ms=60_000)
    for number in range(3):
        made.issue(samples(number))
    assert answers.begun.wait(60)
    made.issue(samples(3))
    made.close()
    assert answers.batches == [[0, 1, 2], [3]]


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("kind", [InlineBatcher, QueueBatcher])
def test_whatever_an_answer_raises_the_test_ends_with_empty_answers(kind, raised):
    answers = Answers()

    def answer(indices):
        raise raised

    made = kind(Batching(max_batch_size=1), answer, answers.complete)
    made.start()
    made.issue(samples(0, 1))
    made.close()
    assert answers.given == {100: b"", 101: b""}
    assert made.failure is raised


@pytest.mark.parametrize("few", [False, True])
def test_after_an_error_all_samples_get_empty_answers_and_the_error_is_kept(few):
    answers = Answers()

    def answer(indices):
        if 2 in indices:
            if few:
                return []
            raise ValueError("gone")
        return answers.answer(indices)

    made = QueueBatcher(Batching(max_batch_size=1), answer, answers.complete)
    made.start()
    made.issue(samples(0, 1, 2, 3))
    made.close()
    assert answers.given == {100: b"0", 101: b"1", 102: b"", 103: b""}
    assert ("gave 0 answers to 1 samples" if few else "gone") in str(made.failure)


@pytest.mark.parametrize("others", [["0"], [memoryview(b"0")], "0", b"0", [None]])
def test_answers_other_than_bytes_are_an_error_and_the_test_still_ends(others):
    answers = Answers()
    made = QueueBatcher(Batching(max_batch_size=1), lambda indices: others, answers.complete)
    made.start()
    made.issue(samples(0, 1))
    made.close()
    assert answers.given == {100: b"", 101: b""}
    assert "give bytes" in str(made.failure)


def test_answers_that_cannot_be_handed_over_are_an_error_and_the_test_still_ends():
    answers = Answers()

    def complete(ids, given):
        if b"1" in given:
            raise ValueError("too long")
        answers.complete(ids, given)

    made = QueueBatcher(Batching(max_batch_size=1), answers.answer, complete)
    made.start()
    made.issue(samples(0, 1, 2))
    made.close()
    assert answers.given == {100: b"0", 101: b"", 102: b""}
    assert str(made.failure) == "too long"


def inline(answers, **policy):
    made = InlineBatcher(Batching(**policy), answers.answer, answers.complete)
    made.start()
    return made


def test_queries_that_come_one_after_the_other_are_answered_where_they_are_issued():
    answers = Answers()
    made = inline(answers, max_batch_size=3, window_ms=1000.0)
    made.issue(samples(*range(8)))
    assert answers.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]  # at once: nothing was waited for
    assert answers.given == {100 + number: str(number).encode() for number in range(8)}
    made.close()
    assert made.answered == 8


def test_an_error_while_a_query_is_issued_is_kept_and_further_queries_get_empty_answers():
    answers = Answers()

    def fail(indices):
        raise ValueError("no answer")

    answers.answer = fail
    made = inline(answers)
    made.issue(samples(0))
    made.issue(samples(1))
    made.close()
    assert str(made.failure) == "no answer"
    assert answers.given == {100: b"", 101: b""}
