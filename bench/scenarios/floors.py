"""What nobody can be faster than: a socket, a client, a bare call of the transition script."""

from __future__ import annotations

import time

from .. import floor
from ..figures import Figure, Result, in_floors, median, plain
from ..scale import Scale
from ..stage import Stage, info, open_stage

_AT_ONCE = 20


async def measure(scale: Scale) -> Result:
    calls = scale.pick(50, 1000, 5000)
    async with open_stage() as stage:
        bare = median(floor.ping_bare(stage.url, calls))
        async with floor.over_redis_py(stage.url) as send:
            library_ping = median(await floor.ping(send, calls))
        async with floor.over_link(stage.url) as send:
            link_ping = median(await floor.ping(send, calls))
        script = median(await floor.sample(stage.url, calls))
        link = median(await floor.sample_link(stage.url, calls))
        inside = await _seconds_in_server(stage)
        rate = await _rate_at_once(stage, calls)
    return Result(
        [
            plain("PING, bare socket", bare * 1e6, "µs"),
            in_floors("PING, redis-py asyncio", library_ping, script),
            in_floors("PING, our link", link_ping, script),
            plain("the floor: transition script, redis-py asyncio", script * 1e6, "µs"),
            in_floors("of it inside the server", inside, script),
            in_floors("the link floor: transition script, our link", link, script),
            plain(f"transitions of {_AT_ONCE} runs at once, our link", rate, "calls/s"),
            Figure("the floor in bare PINGs", script / bare, "×"),
        ]
    )


async def _seconds_in_server(stage: Stage) -> float:
    """Mean time the server itself spends on the script."""
    await stage.world.command("CONFIG", "RESETSTAT")
    await floor.sample(stage.url, 200)
    stats = info(await stage.world.command("INFO", "commandstats"))
    return float(stats["cmdstat_evalsha"].partition("usec_per_call=")[2].partition(",")[0]) / 1e6


async def _rate_at_once(stage: Stage, calls: int) -> float:
    each = max(5, calls // _AT_ONCE)
    began = time.perf_counter()
    await floor.sample_link(stage.url, each, chains=_AT_ONCE)
    return each * _AT_ONCE / (time.perf_counter() - began)
