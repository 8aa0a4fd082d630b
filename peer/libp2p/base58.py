"""Base58 with the alphabet of Bitcoin, in which libp2p writes peer ids.

The whole is one big number, so the cost grows with the square of the length: whoever calls bounds what it passes in.
"""

from __future__ import annotations

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT = {letter: digit for digit, letter in enumerate(ALPHABET)}


def encode(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    letters = []
    while number:
        number, digit = divmod(number, 58)
        letters.append(ALPHABET[digit])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return ALPHABET[0] * zeros + "".join(reversed(letters))


def decode(text: str) -> bytes:
    """ValueError for a letter that is not of the alphabet."""
    number = 0
    for letter in text:
        if letter not in _DIGIT:
            raise ValueError(f"{letter!r} is no letter of base58")
        number = number * 58 + _DIGIT[letter]
    zeros = len(text) - len(text.lstrip(ALPHABET[0]))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
