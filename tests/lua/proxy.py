"""A proxy in front of a server, which can lose an answer or fall silent."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit


class Proxy:
    """Passes everything on. `lose_next_answer`: the next request reaches the server, its answer does not come
    back and the connection is cut."""

    def __init__(self, target: str, directory: Path) -> None:
        self._target = unquote(urlsplit(target).path)
        self._path = str(directory / "proxy.sock")
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = f"unix://{self._path}"
        self.losing = False
        self.silent = False
        self.trickle = 0.0  # seconds before each 4 KiB of an answer
        self.lost = 0

    def lose_next_answer(self) -> None:
        self.losing = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._target)
        pumps = [
            asyncio.ensure_future(self._pump(reader, back, answers=False)),
            asyncio.ensure_future(self._pump(there, writer, answers=True)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        writer.close()
        back.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if answers and self.losing:
                    self.losing = False
                    self.lost += 1
                    return
                if not (answers and self.silent):
                    await self._pass_on(writer, data, slowly=answers and self.trickle > 0)

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes, *, slowly: bool) -> None:
        size = 1 << 12 if slowly else len(data)
        for start in range(0, len(data), size):
            if slowly:
                await asyncio.sleep(self.trickle)  # the slowness itself
            writer.write(data[start : start + size])
            await writer.drain()
