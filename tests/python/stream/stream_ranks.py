# SPDX-License-Identifier: Apache-2.0
"""What the processes of these tests do, and the tensors that they move."""
from __future__ import annotations

import asyncio
import hashlib
import pathlib
import time
from typing import Any, Iterator

import torch

from weft import stream

BUCKET = 64 << 10
OPTIONS: dict[str, Any] = {"bucket_bytes": BUCKET, "table_bytes": 4096, "join_timeout_s": 30.0, "update_timeout_s": 20.0}


def weights(step: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Of every kind; values differ from step to step."""
    random = torch.Generator().manual_seed(step)
    large = torch.randn(200, 301, generator=random)  # 3.7 buckets
    yield "embed.weight", large.to(torch.bfloat16)
    yield "scale", torch.tensor(float(step))
    yield "counter", torch.tensor(step, dtype=torch.int64)
    yield "fp8", torch.randn(33, 65, generator=random).to(torch.float8_e4m3fn)
    yield "transposed", large.t()
    yield "strided", large[:, ::3]
    yield "flags", torch.randint(0, 2, (7, 3), generator=random).bool()
    yield "nothing", torch.empty(0, 5)
    yield "int8", torch.randint(-128, 127, (1001,), generator=random).to(torch.int8)
    yield "complex", torch.randn(5, generator=random).to(torch.complex64).conj()
    yield "parameter", torch.nn.Parameter(torch.randn(64, 64, generator=random))
    tied = torch.randn(17, generator=random, dtype=torch.float64)
    yield "lm_head.weight", tied
    yield "lm_head.weight.again", tied
    for layer in range(60):  # more names than one table has room for
        yield f"model.layers.{layer}.a_name_that_takes_its_room.input_layernorm.weight", torch.full((16,), layer * step).half()
    yield "f32", torch.randn(BUCKET // 4 + 1, generator=random)


def mark(name: str, tensor: torch.Tensor) -> str:
    tensor = tensor.detach().resolve_conj().contiguous()
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{name} {tensor.dtype} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()}"


def marks(step: int) -> list[str]:
    return [mark(*item) for item in weights(step)]


def sender(address: str, rank: int, world: int, receivers: int, **options: Any) -> stream.Sender:
    return stream.Sender(address, rank, world, receivers=receivers, **{**OPTIONS, **options})


def receiver(address: str, rank: int, world: int, receivers: int, **options: Any) -> stream.Receiver:
    return stream.Receiver(address, rank, world, receivers=receivers, **{**OPTIONS, **options})


# ---- streams that go well

def sends(address: str, rank: int, world: int, receivers: int, steps: int) -> list[stream.Figures]:
    with sender(address, rank, world, receivers) as end:
        end.join()
        return [end.send(weights(step), step) for step in range(1, steps + 1)]


def receives(address: str, rank: int, world: int, receivers: int, steps: int) -> tuple[list[list[str]], stream.Figures | None]:
    with receiver(address, rank, world, receivers) as end:
        end.join()
        return [[mark(*item) for item in end.receive(step)] for step in range(1, steps + 1)], end.figures


def sends_async(address: str, rank: int, world: int, receivers: int, steps: int) -> int:
    """With a clock beside it: how often the loop came round meanwhile."""
    async def slowly(step: int) -> Any:
        for item in weights(step):
            await asyncio.sleep(0)
            yield item

    async def work() -> int:
        ticks, over = 0, False

        async def clock() -> None:
            nonlocal ticks
            while not over:
                await asyncio.sleep(0.005)
                ticks += 1
        beside = asyncio.ensure_future(clock())
        with sender(address, rank, world, receivers) as end:
            await end.join_async()
            for step in range(1, steps + 1):
                await end.send_async(slowly(step) if rank else weights(step), step)
        over = True
        await beside
        return ticks
    return asyncio.run(work())


def receives_async(address: str, rank: int, world: int, receivers: int, steps: int) -> tuple[list[list[str]], int]:
    """Rank 0 keeps all tensors, as an engine may with own=True; the other takes lists. The loop is to come round while
    trainers let it wait."""
    async def work() -> tuple[list[list[str]], int]:
        found: list[list[str]] = []
        with receiver(address, rank, world, receivers) as end:
            await end.join_async()
            for step in range(1, steps + 1):
                if rank == 0:
                    kept = [item async for item in end.receive_async(step, own=True)]
                else:
                    kept = []
                    async for batch in end.batches_async(step):
                        kept += [(name, tensor.clone()) for name, tensor in batch]
                found.append([mark(*item) for item in kept])
        return found, 1
    return asyncio.run(work())


def sends_nothing(address: str, rank: int, world: int, receivers: int) -> stream.Figures:
    with sender(address, rank, world, receivers) as end:
        end.join()
        end.send([], 1)
        return end.send(weights(2), 2)


def receives_nothing(address: str, rank: int, world: int, receivers: int) -> tuple[list[Any], list[str]]:
    with receiver(address, rank, world, receivers) as end:
        end.join()
        return list(end.receive(1)), [mark(*item) for item in end.receive(2)]


def receives_slowly(address: str, rank: int, world: int, receivers: int, steps: int) -> list[list[str]]:
    """While a bucket is looked at again and again, the next one arrives: it must not change."""
    found = []
    with receiver(address, rank, world, receivers) as end:
        end.join()
        for step in range(1, steps + 1):
            seen = []
            for batch in end.batches(step):
                before = [mark(*item) for item in batch]
                time.sleep(0.02)
                assert before == [mark(*item) for item in batch], "a bucket changed under who reads it"
                seen += before
            found.append(seen)
    return found


# ---- streams that fail

def sends_or_raises(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    """The last trainer's generator raises in the middle of the second stream."""
    def breaks() -> Iterator[tuple[str, torch.Tensor]]:
        for at, item in enumerate(weights(2)):
            if at == 12 and rank == world - 1:
                raise RuntimeError("CUDA out of memory, say")
            yield item
    with sender(address, rank, world, receivers) as end:
        end.join()
        end.send(weights(1), 1)
        end.send(breaks(), 2)


def receives_two(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with receiver(address, rank, world, receivers) as end:
        end.join()
        assert [mark(*item) for item in end.receive(1)] == marks(1)
        whole = list(end.receive(2))
        raise AssertionError(f"a stream of {len(whole)} tensors that nobody sent was whole")


def receives_on_no_device(address: str, rank: int, world: int, receivers: int, device: str) -> None:
    """The last receiver's device is none."""
    with receiver(address, rank, world, receivers) as end:
        end.join()
        whole = list(end.receive(1, device=device if rank == receivers - 1 else None))
        raise AssertionError(f"a stream of {len(whole)} tensors was whole, though a receiver could not begin")


def sends_one(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with sender(address, rank, world, receivers) as end:
        end.join()
        end.send(weights(1), 1)


def sends_differently(address: str, rank: int, world: int, receivers: int, how: str) -> None:
    """Trainer 1 differs."""
    def differs() -> Iterator[tuple[str, torch.Tensor]]:
        items = list(weights(1))
        if rank == 1:
            if how == "order":
                items[3], items[4] = items[4], items[3]
            elif how == "shape":
                items[8] = "int8", torch.zeros(1000, dtype=torch.int8)
            elif how == "dtype":
                items[3] = "fp8", torch.zeros(33, 65, dtype=torch.float8_e5m2)
            elif how == "fewer":
                items = items[:5]
            elif how == "more":
                items.append(("one_more", torch.zeros(3)))
        yield from items
    with sender(address, rank, world, receivers) as end:
        end.join()
        end.send(differs(), 2 if how == "step" and rank == 1 else 1)


def receives_one(address: str, rank: int, world: int, receivers: int, *_: Any) -> int:
    with receiver(address, rank, world, receivers) as end:
        end.join()
        return len(list(end.receive(1)))


def sends_for_ever(address: str, rank: int, world: int, receivers: int, mark_file: str) -> None:
    """The file is there once the first stream is over."""
    with sender(address, rank, world, receivers) as end:
        end.join()
        for step in range(1, 1 << 30):
            end.send(weights(step), step)
            pathlib.Path(mark_file).touch()


def receives_for_ever(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with receiver(address, rank, world, receivers) as end:
        end.join()
        for step in range(1, 1 << 30):
            for _ in end.receive(step):
                pass


def sends_with_a_deadline(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with sender(address, rank, world, receivers, update_timeout_s=1.0) as end:
        end.join()
        end.send(weights(1), 1)


def stops_receiving(address: str, rank: int, world: int, receivers: int, how: str) -> None:
    """Receiver 1 takes one tensor, and then none."""
    with receiver(address, rank, world, receivers) as end:
        end.join()
        for _ in end.receive(1):
            if rank == 1 and how == "sleeps":
                time.sleep(2.5)  # for each tensor of the bucket that it has; the senders give up after 1 s
            if rank == 1 and how == "breaks":
                return
            if rank == 1 and how == "raises":
                raise ValueError("no such parameter in this engine")


def sends_one_and_waits(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with sender(address, rank, world, receivers) as end:
        end.join()
        end.send(weights(1), 1)
        time.sleep(5)
        end.worker.check()


def receives_two_with_a_deadline(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with receiver(address, rank, world, receivers, update_timeout_s=1.5) as end:
        end.join()
        for step in (1, 2):
            for _ in end.receive(step):
                pass


def sends_cancelled(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    """Trainer 0's task is cancelled in the middle."""
    async def work() -> None:
        end = sender(address, rank, world, receivers)
        await end.join_async()
        count = 0

        async def slowly() -> Any:
            nonlocal count
            for item in weights(1):
                count += 1
                await asyncio.sleep(0.01)
                yield item
        task = asyncio.ensure_future(end.send_async(slowly(), 1))
        if rank == 0:
            while count < 6:
                await asyncio.sleep(0.01)
            task.cancel()
        await task
    asyncio.run(work())


def sends_with_another_step(address: str, rank: int, world: int, receivers: int, *_: Any) -> None:
    with sender(address, rank, world, receivers) as end:
        end.join()
        end.send(weights(1), 9)
