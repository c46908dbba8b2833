"""Everything random in a body comes from the 16 random bytes drawn when its run was created.

The run id plays no part in what must not be guessed: it is shown in URLs and logs. Each use has a
key of its own, so that nothing learned from one tells another.
"""

from __future__ import annotations

import base64
import hmac
from random import Random
from uuid import UUID


class Seeds:
    """The random streams of one body, from its start."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._random: Random | None = None
        self._uuids: Random | None = None

    def random(self) -> Random:
        """The one generator user code draws from."""
        if self._random is None:
            self._random = Random(int.from_bytes(self._derive("random")))
        return self._random

    def uuid4(self) -> UUID:
        if self._uuids is None:
            self._uuids = Random(int.from_bytes(self._derive("uuid")))
        return UUID(bytes=self._uuids.randbytes(16), version=4)

    def hook_token(self, run_id: str, hook_id: str) -> str:
        """``<run id>.<hook number>.<secret>``: locates its run, and cannot be guessed."""
        secret = self._derive(f"hook/{run_id}/{hook_id}")[:16]
        text = base64.urlsafe_b64encode(secret).decode().rstrip("=")
        return f"{run_id}.{hook_id[1:]}.{text}"

    def _derive(self, use: str) -> bytes:
        return hmac.digest(self._seed, use.encode(), "sha256")
