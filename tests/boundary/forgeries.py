"""Forged messages, odd values and damage for every decoder, and what must come of them: one sentence, soon."""

import json
from time import process_time

import numpy as np

from tacit.boundary.wire import MAGIC, MAX_HEADER, encode
from tacit.errors import TacitError

#: What can be in a message where it does not belong.
TEXTS = ["", "x", "party-1", "party-2", "Infinity", "[[Infinity]]", '[["party-1", 1e999, 16, 0]]', '{"a": ' * 4000,
         "[" * 4000, "9" * 5000, "x = " + "9" * 5000, ".".join("a" * 9000) + " = 1", "x" * 60_000, "a\nb", "\x1b[2J",
         "\ud800"]  # fmt: skip
BYTES = [b"[1, 2.5]", b"[" * 4000, b'[1, "a", ' + b"9" * 5000 + b"]", b"[Infinity]", b'[["a", "b"], []]',
         f"[{10**400}]".encode()]  # fmt: skip
NUMBERS = [5, -1, 0, True, None, 1.5, 1e308, 2**31, 2**63, 10**40, 10**400]
ARRAYS = [np.zeros(0, np.uint8), np.zeros(1, np.uint8), np.zeros(3, np.int64) - 5, np.zeros((2, 2), np.float32)]
ODD = [*NUMBERS, *TEXTS, *ARRAYS, *(np.frombuffer(body, np.uint8) for body in BYTES)]


def one_sentence(act, who="", slow=1.0):
    """Do it: what it returns, or its error, which must be Tacit's own; and soon.

    An error about what a peer, `who`, has sent names the peer, on one line that any terminal can show.
    """
    began, found = process_time(), None
    try:
        found = act()
    except TacitError as error:
        found = error
        text = str(error)
        assert text
        assert who in text, text[:300]
        assert not who or (len(text) <= 5000 and text.isprintable()), repr(text[:300])
    assert process_time() - began < slow, f"took {process_time() - began:.1f} s of CPU"
    return found


def mutated(draw, content, odd=ODD):
    """A message's content with a value or two changed, gone, or added; texts and bytes may only be damaged."""
    content = dict(content)
    for _ in range(1 + draw.randrange(2)):
        name = draw.choice([*content, "more"])
        way = draw.random()
        if way < 0.1:
            content.pop(name, None)
        elif way < 0.35 and isinstance(content.get(name), str):
            content[name] = damaged(draw, content[name].encode()).decode(errors="ignore")
        elif way < 0.35 and isinstance(content.get(name), np.ndarray) and content[name].dtype == np.uint8:
            content[name] = np.frombuffer(damaged(draw, content[name].tobytes()), np.uint8)
        else:
            content[name] = draw.choice(odd)
    return content


def damaged(draw, body: bytes) -> bytes:
    """Bytes that were cut off, lengthened, put twice, or have bits turned."""
    way = draw.randrange(5)
    at = draw.randrange(len(body) + 1)
    if way == 0:
        return body[:at]
    if way == 1:
        return body[:at] + draw.randbytes(1 + draw.randrange(9)) + body[at:]
    if way == 2:
        return body[:at] + draw.choice([b"9" * 5000, b"-", b"e999", b'"', b"[", b"\n", b"=", b".a" * 3000]) + body[at:]
    if way == 3:
        return body + body[at:]
    turned = bytearray(body)
    for _ in range(min(len(body), 1 + draw.randrange(3))):
        turned[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
    return bytes(turned)


def each(draw, content, number):
    """Every odd value in every place once, and then mutations at random."""
    for name in content:
        for value in ODD:
            yield {**content, name: value}
    for _ in range(number):
        yield mutated(draw, content)


def forged(header, body=b""):
    """A message with any header, its length right and its padding in place."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = MAGIC + len(text).to_bytes(4, "little") + text
    return start + bytes(-len(start) % 8) + body


ARRAY = {"dtype": "<f4", "shape": [2]}
HUGE = 2**39


def nested(opening, closing, depth):
    return b'{"a":' + opening * depth + b"1" + closing * depth + b"}"


FORGERIES = {
    "nothing": b"",
    "no magic": b"\0" * 16,
    "another magic": b"TCT2" + encode({})[4:],
    "no length": MAGIC,
    "a length beyond the message": MAGIC + b"\xff\xff\xff\xff" + b"{}",
    "a header beyond the limit": forged({"a": "x" * MAX_HEADER}),
    "no JSON": forged(b"{"),
    "no UTF-8": forged(b'{"\xff":1}'),
    "a list": forged([1, 2]),
    "a number": forged(b"7"),
    "null": forged(b"null"),
    "not a number": forged(b'{"a":NaN}'),
    "infinity": forged(b'{"a":Infinity}'),
    "minus infinity": forged(b'{"a":-Infinity}'),
    "a float too large": forged(b'{"a":1e999}'),
    "an integer of 5,000 digits": forged(b'{"a":' + b"9" * 5000 + b"}"),
    "a list as value": forged({"a": [1]}),
    "an empty description": forged({"a": {}}),
    "no shape": forged({"a": {"dtype": "<f4"}}),
    "no dtype": forged({"a": {"shape": [0]}}),
    "one key too many": forged({"a": {**ARRAY, "order": "F"}}, bytes(8)),
    "an object array": forged({"a": {"dtype": "|O", "shape": [1]}}, bytes(8)),
    "big-endian": forged({"a": {"dtype": ">f4", "shape": [2]}}, bytes(8)),
    "a dtype by another name": forged({"a": {"dtype": "float32", "shape": [2]}}, bytes(8)),
    "a dtype that is no text": forged({"a": {"dtype": ["<f4"], "shape": [2]}}, bytes(8)),
    "a structured dtype": forged({"a": {"dtype": [["x", "<f4"]], "shape": [2]}}, bytes(8)),
    "a shape that is no list": forged({"a": {"dtype": "<f4", "shape": 2}}, bytes(8)),
    "a negative side": forged({"a": {"dtype": "<f4", "shape": [-2, -1]}}, bytes(8)),
    "a side that is no whole number": forged({"a": {"dtype": "<f4", "shape": [2.0]}}, bytes(8)),
    "a side that is true": forged({"a": {"dtype": "<f4", "shape": [True]}}, bytes(8)),
    "a side that is null": forged({"a": {"dtype": "<f4", "shape": [None]}}, bytes(8)),
    "a side that is text": forged({"a": {"dtype": "<f4", "shape": ["2"]}}, bytes(8)),
    "five dimensions": forged({"a": {"dtype": "<f4", "shape": [1, 1, 1, 1, 2]}}, bytes(8)),
    "one huge side": forged({"a": {"dtype": "<f4", "shape": [HUGE]}}),
    "four huge sides": forged({"a": {"dtype": "<f8", "shape": [HUGE] * 4}}),
    "no bytes of huge sides": forged({"a": {"dtype": "<f8", "shape": [0, HUGE, HUGE, HUGE]}}),
    "a side beyond 2**64": forged({"a": {"dtype": "<f4", "shape": [2**70]}}),
    "sides whose product wraps round": forged({"a": {"dtype": "<f8", "shape": [2**32, 2**32]}}),
    "one byte too few": forged({"a": {"dtype": "|u1", "shape": [9]}}, bytes(8)),
    "bytes that nobody accounts for": forged({"a": ARRAY}, bytes(16)),
    "one array's bytes for two": forged({"a": ARRAY, "b": ARRAY}, bytes(8)),
    "padding that is not zero": forged({"a": {"dtype": "|u1", "shape": [3]}}, b"abcdefgh"),
    "padding of the header that is not zero": MAGIC + b"\2\0\0\0{}" + b"secret",
    "a name of 10,000 letters": forged({"n" * 10_000: 1}),
    "a name with line breaks": forged({"a\nWARNING: all is well\n": [1]}),
    "a name that is half a character": forged(b'{"\\ud800":1}'),
    "no padding": MAGIC + b"\2\0\0\0{}",
    "half a padding": MAGIC + b"\2\0\0\0{}" + bytes(3),
    "one name twice, one array": forged(
        b'{"a":{"dtype":"<f4","shape":[2]},"a":{"dtype":"<f4","shape":[2]}}', bytes(16)
    ),
    "lists 30,000 deep": forged(nested(b"[", b"]", 30_000)),
    "tables 10,000 deep": forged(nested(b'{"a":', b"}", 10_000)),
}
