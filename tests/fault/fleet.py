"""Real workers and routers of a test, ended with it; workers keep their ports over a restart."""
import asyncio
import json
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "process"))
from harness import BIN, DEMO, Process, RouterUnderTest, free_port, metric_in  # noqa: E402

from proxy import FaultProxy  # noqa: E402


class Worker:
    def __init__(self, *flags, model=DEMO, program=BIN / "quire-worker"):
        self.port, self.http_port = free_port(), free_port()
        self.flags, self.model, self.program = flags, model, program
        self.process = None

    async def start(self):
        self.process = Process([self.program, "--model", self.model, f"--listen=127.0.0.1:{self.port}",
                                f"--http-port={self.http_port}", "--threads=1", *self.flags])
        await asyncio.to_thread(self.process.wait_for_line, "ready:")
        return self

    def signal(self, number):
        self.process.signal(number)

    async def kill(self):
        self.signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)

    async def get(self, path):
        """Status and text of what it answers to its port of probes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return int(head.split()[1]), text

    async def metric(self, name):
        _, text = await self.get("/metrics")
        return metric_in(text, name)


class Fleet:
    """`async with Fleet(workers=2, routers=1, proxied=True) as fleet`."""

    def __init__(self, workers=2, routers=1, proxied=False, router_flags=(), worker_flags=(), **worker):
        self.workers = [Worker(*worker_flags, **worker) for _ in range(workers)]
        self.proxies = [FaultProxy(worker.port) for worker in self.workers] if proxied else []
        self.router_count, self.router_flags = routers, router_flags
        self.routers = []

    async def __aenter__(self):
        try:
            await asyncio.gather(*(worker.start() for worker in self.workers))
            for proxy in self.proxies:
                await proxy.start()
            self.targets = [p.port for p in self.proxies] or [w.port for w in self.workers]
            for _ in range(self.router_count):
                self.routers.append(await self.start_router())
            for router in self.routers:
                await self.until(lambda: router.metric('quire_router_workers{phase="ready"}') == len(self.workers),
                                 "all workers are ready")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def start_router(self, *flags):
        targets = [f"--worker=127.0.0.1:{port}" for port in self.targets]
        return await asyncio.to_thread(RouterUnderTest, *targets, *self.router_flags, *flags)

    @property
    def router(self):
        return self.routers[0]

    def worker_named(self, worker_id):
        """The worker that greeted the first router by this name."""
        for line in self.routers[0].process.lines:
            if f'"worker_id":"{worker_id}"' in line:
                port = int(json.loads(line)["worker"].rsplit(":", 1)[1])
                return self.workers[self.targets.index(port)]
        raise AssertionError(f"no worker is called {worker_id}")

    async def until(self, condition, what, limit_s=60):
        await asyncio.to_thread(self.routers[0].wait_until, condition, what, limit_s)

    async def worker_metrics_are(self, name, value, limit_s=60):
        """All workers that run say so."""
        end = asyncio.get_running_loop().time() + limit_s
        while True:
            seen = [await worker.metric(name) for worker in self.workers if worker.process.child.poll() is None]
            if all(s == value for s in seen):
                return
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{name} is {seen}, should be {value}")
            await asyncio.sleep(0.05)

    async def __aexit__(self, *_):
        for router in self.routers:
            router.process.close()
        for worker in self.workers:
            if worker.process is not None:
                worker.process.close()
        for proxy in self.proxies:
            await proxy.close()
