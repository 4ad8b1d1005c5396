"""A network between two real processes that can be made bad: delay, bandwidth, one direction held while the
connection stays open, resets, an end in the middle of a frame."""
import asyncio
import socket
import struct
import time

UP, DOWN = "up", "down"  # towards the worker, towards the router


class FaultProxy:
    """Passes connections on to `target_port`; what the attributes say holds from the next piece of bytes on."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.delay_s = 0.0
        self.bytes_per_s = None
        self.held = {UP: False, DOWN: False}
        self.refuses = False
        self.idle_s = None  # a connection on which nothing has passed for so long is closed
        self.end_after_bytes = None  # of those that go down; then both ends see an orderly end
        self.accepted = 0
        self._writers = set()
        self._tasks = set()

    async def start(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def _accept(self, reader, writer):
        self.accepted += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            if self.refuses:
                return self._reset(writer)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            self._writers |= {writer, far_writer}
            passed = [time.monotonic()]
            pumps = [asyncio.ensure_future(self._pump(reader, far_writer, UP, passed)),
                     asyncio.ensure_future(self._pump(far_reader, writer, DOWN, passed))]
            try:
                done = ()
                while not done and (self.idle_s is None or time.monotonic() < passed[0] + self.idle_s):
                    left = None if self.idle_s is None else passed[0] + self.idle_s - time.monotonic()
                    done, _ = await asyncio.wait(pumps, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                for end in (writer, far_writer):
                    self._writers.discard(end)
                    end.close()
        except OSError:
            self._reset(writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)

    async def _pump(self, reader, writer, direction, passed):
        try:
            while True:
                piece = await reader.read(16384 if self.bytes_per_s is None else 1024)
                passed[0] = time.monotonic()
                while self.held[direction]:
                    await asyncio.sleep(0.01)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.bytes_per_s:
                    await asyncio.sleep(len(piece) / self.bytes_per_s)
                if not piece:
                    return
                if direction == DOWN and self.end_after_bytes is not None:
                    piece = piece[:self.end_after_bytes]
                    self.end_after_bytes -= len(piece)
                writer.write(piece)
                await writer.drain()
                if self.end_after_bytes == 0:
                    self.end_after_bytes = None
                    return
        except (OSError, asyncio.CancelledError):
            return

    @staticmethod
    def _reset(writer):
        with_socket = writer.get_extra_info("socket")
        if with_socket is not None:
            with_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    def reset_all(self):
        """Both ends of every connection see a reset."""
        for writer in list(self._writers):
            self._reset(writer)

    async def close(self):
        self.server.close()
        self.reset_all()
        for task in list(self._tasks):
            task.cancel()
        await self.server.wait_closed()
