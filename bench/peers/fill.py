"""Fills a peer's queue: ``python -m bench.peers.fill MODULE COUNT``."""

from __future__ import annotations

import asyncio
import importlib
import sys

if __name__ == "__main__":
    asyncio.run(importlib.import_module(sys.argv[1]).fill(int(sys.argv[2])))
