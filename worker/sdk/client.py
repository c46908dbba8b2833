"""Starting and finding runs from outside.

A client belongs to the event loop it was first used in.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

import msgpack
import orjson

from world_redis.claims import StartClaims
from world_redis.events import Answer, EventType
from world_redis.hooks import HookAddress, Hooks, Tokens, address_of
from world_redis.ids import is_run_id, long_id, new_mark, new_run_id, partition_of
from world_redis.keys import Keys
from world_redis.log import Log
from world_redis.messages import RunContext, RunMessage, pack_run_message, unpack_run_message
from world_redis.roster import live_workers
from world_redis.runs import Runs
from world_redis.world import RedisWorld

from ..addresses import resolve
from ..core.records import HookCreated, HookReceived, pack, unpack
from ..core.spec import SPEC
from ..settings import Settings
from .context import current_body, current_step
from .definitions import StartOptions, WorkflowDefinition
from .errors import HookNotFoundError, RunExistsError, RunNotFoundError
from .history import RunInfo
from .listing import list_runs as _list_runs
from .notices import Notices
from .run import Run
from .step import RunningStep, claim_of_running_step
from .values import Codec

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_QUEUE = "default"
PATIENCE = 30.0  # seconds a call waits for a server that is away
_LOOK_AT_PARTITIONS = 10.0  # seconds between two looks at which are open to new runs
_AT_ONCE = 500  # starts in flight of start_many


class StartRequest(NamedTuple):
    """All that starting takes, kept under an idempotency key: whoever meets the key without its run
    creates the run."""

    run_id: str
    message: RunMessage
    due_in: int  # ms
    due_at: int  # ms
    extra: dict[str, str]  # more fields of the run's record

    def pack(self) -> bytes:
        run_id, message, *rest = self
        packed: bytes = msgpack.packb((run_id, pack_run_message(message), *rest))
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> StartRequest:
        run_id, message, due_in, due_at, extra = msgpack.unpackb(packed)
        return cls(run_id, unpack_run_message(message), due_in, due_at, extra)


class Page(NamedTuple):
    """A part of `list_runs`."""

    runs: list[RunInfo]
    cursor: str | None  # of the next part; None at the end


@dataclass(frozen=True, slots=True)
class HookInfo:
    """An open or once open hook, looked up by its token."""

    token: str
    run_id: str
    hook_id: str
    name: str = ""  # of the payload class; "" where a resume answers, which does not read it
    metadata: Any = None


class Client:
    """The way in for one namespace on one server. It connects when it is first used.

    Args:
        url: the server, as ``WORKFLOW_REDIS_URL``.
        settings: what else is set; None reads the environment.
        namespace: wins over the settings' own.
        patience: seconds a call waits for a server that is away.
    """

    def __init__(
        self,
        url: str,
        *,
        settings: Settings | None = None,
        namespace: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self._settings = settings or Settings.load()
        self._url = url
        self.keys = Keys(namespace or self._settings.namespace)
        self.codec = Codec(max_bytes=self._settings.max_payload_bytes)
        self.retention_ms = self._settings.retention_seconds * 1000
        self._open_partitions = 1
        self._look_again = 0.0  # at the partitions, by the loop's clock
        self._world: RedisWorld | None = None
        self._notices: Notices | None = None
        self._server: Any = None  # of an embedded:// URL
        self._opening = asyncio.Lock()

    @classmethod
    def from_url(cls, url: str, *, namespace: str | None = None) -> Self:
        """A client of `url`: ``redis:// rediss:// unix:// embedded:///directory``."""
        return cls(url, namespace=namespace)

    @classmethod
    def from_settings(
        cls, settings: Settings, *, namespace: str | None = None, patience: float = PATIENCE
    ) -> Self:
        """A client of ``WORKFLOW_REDIS_URL``. Raises SettingsError when that is not set."""
        return cls(settings.url, settings=settings, namespace=namespace, patience=patience)

    # --- life -------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect now.

        Raises:
            StoreUnavailable, UnsafeServer, LayoutMismatch, LeaseMismatch: the server cannot be used.
        """
        await self.world()
        return self

    async def close(self) -> None:
        notices, self._notices = self._notices, None
        world, self._world = self._world, None
        server, self._server = self._server, None
        if notices is not None:
            await notices.close()
        if world is not None:
            await world.close()
        if server is not None:
            await asyncio.to_thread(server.stop)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def world(self) -> RedisWorld:
        """The connected store."""
        await claim_of_running_step()
        if self._world is None:
            async with self._opening:
                if self._world is None:
                    self._world = await self._connect()
        return self._world

    async def _connect(self) -> RedisWorld:
        settings = self._settings
        url, self._server = await asyncio.to_thread(resolve, self._url)
        world = RedisWorld(
            url,
            namespace=self.keys.namespace,
            partitions=settings.partitions,
            lease=None,
            durability=settings.durable,
            patience=self._patience,
        )
        await world.open()
        self._notices = Notices(url)
        return world

    @property
    def notices(self) -> Notices:
        assert self._notices is not None, "used before world()"
        return self._notices

    async def runs(self) -> Runs:
        return Runs(await self.world())

    async def log(self) -> Log:
        return Log(await self.world(), "client")

    # --- starting ---------------------------------------------------------------------------------

    async def start(self, workflow: WorkflowDefinition[P, T], *args: P.args, **kwargs: P.kwargs) -> Run[T]:
        """Start a run. Options come from ``workflow.with_options(...)``.

        With an idempotency key a repeat answers the run that the first call started. Inside a step a
        default key makes a repeated attempt start nothing more.

        Raises:
            TypeValidationError, SerializationError: the arguments do not fit or cannot be recorded.
            RunExistsError: ``on_duplicate="raise"`` and the key is taken, or it names another workflow.
            StoreUnavailable: no answer from the server.
            TypeError: `workflow` is not one.
        """
        check_workflow(workflow, "start")
        target, input = self._encode(workflow, args, kwargs)
        key = workflow.options.idempotency_key or _key_in_step()
        world = await self._world_for_starts()
        request = self._request(target, input, workflow.options, key or "")
        if key is not None:
            request = await self._claim(key, request, workflow)
        await self._create(world, request)
        return Run(self, request.run_id, target)

    async def start_many(
        self,
        workflow: WorkflowDefinition[Any, T],
        arguments: Iterable[Sequence[Any] | Mapping[str, Any]],
    ) -> list[Run[T]]:
        """Start one run for each set of arguments: a sequence by position, a mapping by name. All are
        checked before the first run is started; an idempotency key does not fit here.

        Raises: as `start`; ValueError for an idempotency key.
        """
        check_workflow(workflow, "start_many")
        if workflow.options.idempotency_key is not None:
            raise ValueError("one idempotency key cannot stand for several runs")
        encoded = [
            self._encode(workflow, (), dict(given))
            if isinstance(given, Mapping)
            else self._encode(workflow, tuple(given), {})
            for given in arguments
        ]
        world = await self._world_for_starts()
        requests = [self._request(target, input, workflow.options) for target, input in encoded]
        for first in range(0, len(requests), _AT_ONCE):
            some = requests[first : first + _AT_ONCE]
            await asyncio.gather(*(self._create(world, request) for request in some))
        target = workflow.for_new_runs()
        return [Run(self, request.run_id, target) for request in requests]

    async def start_again(self, info: RunInfo, input: bytes) -> str:
        """Start a new run like an ended one; answers its id."""
        run_id = new_run_id(partition_of(info.run_id))
        context = self._context(run_id, info.workflow, info.version, info.queue)
        message = RunMessage(context, os.urandom(16), input, new_mark())
        extra = {"retried_from": info.run_id, "attributes": orjson.dumps(dict(info.attributes)).decode()}
        await self._create(await self.world(), StartRequest(run_id, message, 0, 0, extra))
        return run_id

    def _encode(
        self, workflow: WorkflowDefinition[Any, T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[WorkflowDefinition[Any, T], bytes]:
        """The version to start and its recorded arguments: what the caller got wrong is said here."""
        if current_body() is not None:
            raise RuntimeError("a client reaches outside the workflow; in a body call start(...)")
        target = workflow.for_new_runs()
        return target, target.signature.encode_arguments(args, kwargs, with_defaults=True)

    def _request(
        self, target: WorkflowDefinition[Any, Any], input: bytes, options: StartOptions, key: str = ""
    ) -> StartRequest:
        run_id = new_run_id(int(random.random() * self._open_partitions))
        queue = options.queue or target.queue or DEFAULT_QUEUE
        timeout = options.timeout if options.timeout is not None else target.timeout
        context = self._context(run_id, target.name, target.version, queue, timeout or 0.0, key)
        message = RunMessage(context, os.urandom(16), input, new_mark())
        extra = {}
        if options.attributes:
            extra["attributes"] = orjson.dumps(dict(options.attributes)).decode()
        due_in = round((options.delay or 0) * 1000)
        due_at = round(options.start_at.timestamp() * 1000) if options.start_at is not None else 0
        return StartRequest(run_id, message, due_in, due_at, extra)

    async def _world_for_starts(self) -> RedisWorld:
        """The store, with its partitions known: one is open to new runs once every live worker reads it."""
        world, now = await self.world(), asyncio.get_running_loop().time()
        if now >= self._look_again:
            self._look_again = now + _LOOK_AT_PARTITIONS
            known = await world.learn_partitions()
            reading = [line.get("partitions", 1) for line in (await live_workers(world)).values()]
            self._open_partitions = min([known, *reading])
        return world

    def _context(
        self, run_id: str, workflow: str, version: int, queue: str, timeout: float = 0.0, key: str = ""
    ) -> RunContext:
        return RunContext(
            workflow=workflow,
            version=version,
            spec=SPEC,
            queue=queue,
            created_at=round(time.time() * 1000),
            root_run_id=run_id,
            deployment=self._settings.deployment_id,
            timeout=math.ceil(timeout * 1000),
            start_key=key,
        )

    async def _claim(
        self, key: str, request: StartRequest, workflow: WorkflowDefinition[Any, Any]
    ) -> StartRequest:
        """Take `key` for this request, or answer the request that holds it."""
        packed = request.pack()
        held = await StartClaims(await self.world()).claim(key, packed)
        if held == packed:
            return request
        earlier = StartRequest.unpack(held)
        name = earlier.message.context.workflow
        if name != workflow.name or workflow.options.on_duplicate == "raise":
            raise RunExistsError(key, earlier.run_id, name)
        return earlier

    async def end_claim(self, run_id: str) -> None:
        """A run was ended from here: its idempotency key is kept as long as the run is."""
        world = await self.world()
        key = await world.command("HGET", self.keys.run(partition_of(run_id), run_id)[0], "start_key")
        if key:
            await StartClaims(world).end(key.decode(), self.retention_ms)

    async def _create(self, world: RedisWorld, request: StartRequest) -> None:
        await Runs(world).start(
            request.run_id,
            request.message,
            request.message.input,
            due_in=request.due_in,
            due_at=request.due_at,
            extra=request.extra,
        )

    # --- finding ----------------------------------------------------------------------------------

    def get_run(self, run_id: str, workflow: WorkflowDefinition[Any, T] | None = None) -> Run[T]:
        """The handle of a run. `workflow` tells how to read its result; without it a model comes back
        as plain values. Nothing is read here.

        Raises:
            RunNotFoundError: `run_id` is not a run id.
        """
        if not is_run_id(run_id):
            raise RunNotFoundError(run_id)
        return Run(self, run_id, workflow)

    async def list_runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Runs of the namespace: those not finished, the newest first; then the finished ones, the last
        to end first. `status` may also be ``parked``. `cursor` is that of the page before.

        Raises:
            ValueError: `status` is no status, `limit` is below 1, or `cursor` is not one.
        """
        world = await self.world()
        found = await _list_runs(world, workflow=workflow, status=status, limit=limit, cursor=cursor)
        return Page(*found)

    # --- hooks ------------------------------------------------------------------------------------

    async def resume(
        self, token_or_hook: str | Any, payload: Any, *, idempotency_key: str | None = None
    ) -> HookInfo:
        """Send `payload` to an open hook: what ``payload.resume(...)`` does.

        Raises:
            HookNotFoundError: nobody waits for this token.
            SerializationError: the payload cannot be recorded.
            TypeError: `token_or_hook` is neither.
        """
        token = token_or_hook if isinstance(token_or_hook, str) else getattr(token_or_hook, "token", None)
        if not isinstance(token, str):
            raise TypeError(f"resume() takes the token of a hook, or the hook; got {token_or_hook!r}")
        data = self.codec.encode(payload, type(payload), path=f"payload {type(payload).__qualname__}")
        return await self.resume_encoded(token, data, idempotency_key=idempotency_key)

    async def resume_encoded(
        self, token: str, data: bytes, *, idempotency_key: str | None = None
    ) -> HookInfo:
        """As `resume`, with the payload as recorded bytes (JSON)."""
        world = await self.world()
        address = await self._address(token)
        resume_id = idempotency_key or os.urandom(12).hex()
        record = pack(HookReceived(data, resume_id))
        answer, _ = await Hooks(world).resume(address, token, resume_id, record)
        if answer is not Answer.OK:
            raise HookNotFoundError(token)
        return HookInfo(token, address.run_id, long_id(address.hook))

    async def get_hook(self, token: str) -> HookInfo:
        """The hook a token leads to, with its metadata. Raises HookNotFoundError."""
        address = await self._address(token)
        log, seen, more = await self.log(), 0, True
        while more:
            page = await log.read(address.run_id, seen=seen, record=False)
            if page is None:
                break
            for event in page.events:
                seen = event.slot
                if event.type is EventType.HOOK_CREATED and event.id == address.hook:
                    return self._hook_info(token, address, unpack(HookCreated, event.data))
            more = page.more
        raise HookNotFoundError(token)

    def _hook_info(self, token: str, address: HookAddress, record: HookCreated) -> HookInfo:
        if record.token != token:
            raise HookNotFoundError(token)
        metadata = self.codec.decode(record.metadata) if record.metadata else None
        return HookInfo(token, address.run_id, long_id(address.hook), record.name, metadata)

    async def _address(self, token: str) -> HookAddress:
        address = address_of(token) or await Tokens(await self.world()).find(token)
        if address is None:
            raise HookNotFoundError(token)
        return address


def check_workflow(given: object, function: str) -> None:
    if isinstance(given, WorkflowDefinition):
        return
    what = repr(given)
    if inspect.iscoroutine(given):
        given.close()  # nobody will await it, and Python would warn of that too
        what = f"a call of {given.__qualname__}; its arguments come after it: {function}(name, ...)"
    raise TypeError(f"{function}() takes a workflow (@wf.workflow); got {what}")


def _key_in_step() -> str | None:
    """The default idempotency key of the n-th start() of a step, the same in every attempt."""
    step = current_step.get()
    if not isinstance(step, RunningStep):
        return None
    step.starts += 1
    return f"{step.metadata.idempotency_key}:start:{step.starts}"
