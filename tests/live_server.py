"""The HTTP application on a real socket in a thread of the test's process, over any frontend."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from palmette.runtime.api.app import ApiOptions, create_app, warm_up
from palmette.runtime.frontend import Frontend
from palmette.runtime.launch.listening import listen
from palmette.runtime.launch.web import Web

T = TypeVar("T")


class LiveServer:
    """`with LiveServer(make_frontend) as server`: `make_frontend` is called in the server's event loop."""

    def __init__(self, make_frontend: Callable[[], Frontend], **options: Any) -> None:
        self._make_frontend = make_frontend
        self._options = options
        self._listener = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.frontend: Frontend
        self.loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def soon(self, action: Callable[[], object]) -> None:
        """Runs `action` in the server's loop and waits for it."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (action(), done.set()))
        assert done.wait(10)

    def _run(self) -> None:
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        self.frontend = self._make_frontend()
        self.frontend.start()
        app = create_app(self.frontend, **self._options)
        warm_up(app)
        options = self._options.get("options", ApiOptions())
        self.web = Web(app, options.limits, metrics=self.frontend.metrics.web)
        self._up.set()
        await self.web.serve(sockets=[self._listener])
        await self.frontend.close()

    def __enter__(self) -> LiveServer:
        self._thread.start()
        assert self._up.wait(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.web.should_exit = True
        self._thread.join(20)
        self._listener.close()
        assert not self._thread.is_alive(), "the server did not end"
