"""Peers beside us: a full queue, one worker process, tasks per second. Ours does three durable steps."""

from __future__ import annotations

import logging
from importlib.metadata import version

from .. import app
from ..figures import Figure, Result, median
from ..peers import PEERS, Peer
from ..scale import Scale
from ..stage import open_stage

log = logging.getLogger("bench")

_CONCURRENCY = 50
_PATIENCE = 120.0  # seconds a peer may take for its queue


async def measure(scale: Scale) -> Result:
    rounds = scale.pick(1, 1, 5)
    result, rates = Result(), []
    installed = [peer for peer in PEERS if peer.installed]
    theirs: dict[str, list[float]] = {peer.name: [] for peer in installed}
    for _ in range(rounds):  # in turns: what disturbs the machine disturbs all
        rates.append(await _ours(scale.pick(60, 400, 5000)))
        for peer in installed:
            theirs[peer.name].append(await _theirs(peer, scale.pick(20, 100, 1000)))
    ours = median(rates)
    result.figures.append(Figure("stepfleet, three-step runs", ours, "per second"))
    for peer in PEERS:
        if not peer.installed:
            log.warning("%s is not installed: skipped", peer.name)
            result.figures.append(Figure(f"{peer.name}: not installed", float("nan"), ""))
            continue
        name = f"{peer.name} {version(peer.package)}, {peer.does}"
        rate = median(theirs[peer.name])
        result.figures.append(
            Figure(name, rate, "per second", ours / rate, "ours to theirs", "> 1", ours > rate)
        )
    return result


async def _ours(runs: int) -> float:
    async with open_stage() as stage:
        await stage.client.start_many(app.three_steps, [(number,) for number in range(runs)])
        stage.launch(_CONCURRENCY)
        await stage.marks.reach(runs, within=_PATIENCE)
        return stage.marks.rate()


async def _theirs(peer: Peer, tasks: int) -> float:
    async with open_stage() as stage:
        filling = stage.run(["-m", "bench.peers.fill", peer.module, str(tasks)])
        await filling.ended(within=_PATIENCE)
        worker = stage.run([word.format(url=stage.url) for word in peer.worker])
        try:
            await stage.marks.reach(tasks, within=_PATIENCE)
        except TimeoutError as error:
            raise RuntimeError(f"{peer.name} did {stage.marks.count} of {tasks}: {stage.said()}") from error
        finally:
            worker.kill()
        return stage.marks.rate()
