"""pytest plugin: what is different under WebAssembly."""

from worker.runtime import watchdog


class _NoWatchdog:
    def add(self, watch: watchdog.Watch) -> None: ...
    def remove(self, watch: watchdog.Watch) -> None: ...


watchdog._watchdog = _NoWatchdog
