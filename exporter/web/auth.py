"""Basic authentication: bcrypt off the event loop, its results remembered without the passwords."""

import asyncio
import base64
import binascii
import hmac
import secrets
from collections.abc import Callable, Mapping

import bcrypt

_LONGEST = 72  # bytes; bcrypt never saw more, and its Python library refuses more
_QUEUE = 64
_WRONG = 1024
_DECOY = b"." * 53

Check = Callable[[bytes, bytes], bool]
"""Whether a password is that of a bcrypt hash; slow, and ValueError for a password over 72 bytes."""


class BusyError(Exception):
    """Too many passwords wait to be checked."""


class Users:
    """Who may come in. It remembers who was let in, and the newest 1024 that were not.

    Known and unknown users take the same way: one bcrypt each, then the memory, so that the time an
    answer takes does not tell who exists. Neither memory holds a password: both go by a digest with a
    key of this object's own.
    """

    def __init__(self, hashes: Mapping[str, str], check: Check = bcrypt.checkpw) -> None:
        self._hashes = {name.encode(): each.encode() for name, each in hashes.items()}
        self._check = check
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, bytes] = {}  # by user, so that wrong ones can never push them out
        self._wrong: dict[bytes, None] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._hashes)

    def __repr__(self) -> str:
        return f"Users({len(self)})"

    async def admit(self, authorization: str) -> bool:
        """Whether the header names a user with the right password; BusyError if that takes too long."""
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        user, _, password = credentials.partition(b":")
        digest = self._digest(credentials)
        known = self._remembered(user, digest)
        return await self._checked(user, password, digest) if known is None else known

    async def _checked(self, user: bytes, password: bytes, digest: bytes) -> bool:
        """One bcrypt at a time, and only so many wait: guesses must not take the processor."""
        if self._waiting >= _QUEUE:
            raise BusyError
        self._waiting += 1
        try:
            async with self._turn:
                known = self._remembered(user, digest)  # the one before may have asked the same
                if known is None:
                    known = await asyncio.to_thread(self._right_password, user, password)
                    self._remember(user, digest, right=known)
                return known
        finally:
            self._waiting -= 1

    def _right_password(self, user: bytes, password: bytes) -> bool:
        known = self._hashes.get(user)
        right = self._check(password[:_LONGEST], known or self._decoy(user))
        return right and known is not None

    def _decoy(self, user: bytes) -> bytes:
        """A hash that costs what that of some real user does, always the same for the same name."""
        hashes = list(self._hashes.values())
        chosen = hashes[int.from_bytes(self._digest(user)) % len(hashes)]
        return chosen[: len("$2b$10$")] + _DECOY

    def _digest(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")

    def _remembered(self, user: bytes, digest: bytes) -> bool | None:
        if hmac.compare_digest(self._right.get(user, b""), digest):
            return True
        return False if digest in self._wrong else None

    def _remember(self, user: bytes, digest: bytes, *, right: bool) -> None:
        if right:
            self._right[user] = digest
            return
        self._wrong[digest] = None
        if len(self._wrong) > _WRONG:
            del self._wrong[next(iter(self._wrong))]


def _credentials(authorization: str) -> bytes | None:
    """`user:password` out of the header; None where it holds none."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        credentials = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return credentials if scheme.lower() == "basic" and b":" in credentials else None
