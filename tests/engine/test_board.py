import hashlib

import pytest

from tacit.engine.board import TOPICS, Board, UnknownNotice
from tacit.errors import BadMessage

DEVICES = ["a" * 64, "b" * 64]


def posted(board, topic, message, devices=tuple(DEVICES)):
    notice = board.post(topic, message)
    board.address(notice.digest, devices)
    return notice


def read_all(board, device, after=0):
    found = []
    while (notice := board.after(device, after)) is not None:
        found.append(notice.message)
        after = notice.number
    return found


def test_everybody_reads_the_same_bytes_in_order():
    board = Board(10)
    for topic in TOPICS[:3]:
        posted(board, topic, topic.encode())
    assert read_all(board, DEVICES[0]) == read_all(board, DEVICES[1]) == [b"offer", b"begin", b"ask"]
    assert board.after(DEVICES[0], 0).number > 10


def test_a_new_request_replaces_the_one_before_and_a_new_offer_everything():
    board = Board(0)
    for topic in TOPICS:
        posted(board, topic, topic.encode())
    posted(board, "ask", b"another")
    assert read_all(board, DEVICES[0]) == [b"offer", b"begin", b"another"]
    posted(board, "offer", b"another offer")
    assert read_all(board, DEVICES[0]) == [b"another offer"]


def test_posting_the_same_message_again_changes_nothing():
    board = Board(0)
    first = posted(board, "offer", b"offer")
    posted(board, "begin", b"begin")
    assert posted(board, "offer", b"offer").number == first.number
    assert read_all(board, DEVICES[0]) == [b"offer", b"begin"]


def test_only_those_who_are_named_read_a_message():
    board = Board(0)
    posted(board, "offer", b"offer", DEVICES[:1])
    assert board.after(DEVICES[1], 0) is None
    board.address(hashlib.sha256(b"offer").hexdigest(), DEVICES[1:])
    assert read_all(board, DEVICES[1]) == [b"offer"]


@pytest.mark.parametrize(("topic", "message"), [("align", b"x"), ("", b"x"), ("ask", b"")])
def test_what_is_no_message_is_refused(topic, message):
    with pytest.raises(BadMessage):
        Board(0).post(topic, message)


def test_nobody_is_named_for_an_unknown_message():
    with pytest.raises(UnknownNotice):
        Board(0).address("0" * 64, DEVICES)
