"""Several processes that train one model, started by `torchrun` on one machine or many.

A process is a rank. All of them run the same script; `fit` notices, and divides each step among them (see division.py).
Rank 0 alone shows progress, calls callbacks and writes; what it decides, all do. Messages other than tensors travel as JSON.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from inducing.inference.checkpoint import differences
from inducing.inference.state import TrainingState


class RankError(RuntimeError):
    """The processes of a run have lost each other, or were not given the same work."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together. All methods but `first` must be called by all of them.

    Arguments:
        rank: Its number, from 0.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether it is the one that shows and writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add a tensor over all ranks, in place; the sum is the same on each, bit by bit."""
        if self.size > 1:
            with _connected():
                dist.all_reduce(values)
        return values

    def maximum(self, *values: int) -> list[int]:
        """The largest over all ranks of each number."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, device=_device())
        with _connected():
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.tolist()

    def broadcast(self, value: Any) -> Any:
        """What rank 0 says, as JSON; what the others say is not heard."""
        return value if self.size == 1 else json.loads(self.send(json.dumps(value).encode()))

    def gather(self, value: Any) -> list[Any]:
        """What each rank says, as JSON, in their order; all of them hear it."""
        if self.size == 1:
            return [value]
        content = json.dumps(value).encode()
        (longest,) = self.maximum(len(content))
        # JSON may end in spaces
        own = _as_tensor(content.ljust(longest))
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        with _connected():
            dist.all_gather(everyone, own)
        return [json.loads(_as_bytes(each)) for each in everyone]

    def send(self, content: bytes) -> bytes:
        """The bytes of rank 0."""
        if self.size == 1:
            return content
        (length,) = self.maximum(len(content) if self.first else 0)
        message = _as_tensor(content) if self.first else torch.empty(length, dtype=torch.uint8, device=_device())
        with _connected():
            dist.broadcast(message, 0)
        return _as_bytes(message)

    def agree(self, values: dict[str, Any], hint: str) -> None:
        """Make sure that all ranks were given the same, and name what was not."""
        theirs = self.gather(values)
        for rank, other in enumerate(theirs):
            if other != theirs[0]:
                raise RankError(
                    f"rank {rank} was given something else than rank 0, with other "
                    f"{', '.join(differences(other, theirs[0]))}. Give all processes all the data and the same settings: "
                    f"{hint}"
                )

    def concatenate(self, values: Tensor, axis: int, lengths: list[int]) -> Tensor:
        """The tensors of all ranks one after another along an axis, where they may have different lengths."""
        if self.size == 1:
            return values
        shape = list(values.shape)
        shape[axis] = max(lengths)
        padded = values.new_zeros(shape)
        padded.narrow(axis, 0, values.shape[axis]).copy_(values)
        everyone = [torch.empty_like(padded) for _ in lengths]
        with _connected():
            dist.all_gather(everyone, padded)
        return torch.cat([each.narrow(axis, 0, length) for each, length in zip(everyone, lengths, strict=True)], axis)

    def share(self, state: TrainingState, constants: list[Tensor]) -> None:
        """Give all ranks the state and the constants of rank 0."""
        if self.size == 1:
            return
        tensors, numbers = state.snapshot()
        fixed = {f"constant.{index:05d}": tensor.detach() for index, tensor in enumerate(constants)}
        numbers = self.broadcast(numbers)
        received = load(self.send(save({name: each.contiguous() for name, each in (tensors | fixed).items()})))
        if not self.first:
            for name, tensor in zip(fixed, constants, strict=True):
                tensor.copy_(received.pop(name))
            state.restore(received, numbers)

    def check_equal(self, state: TrainingState) -> None:
        """Make sure that no rank has gone astray: all have the same parameters, bit by bit."""
        if self.size == 1:
            return
        digest = hashlib.sha256()
        for tensor in state.tensors():
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        digests = self.gather(digest.hexdigest())
        astray = [rank for rank, each in enumerate(digests) if each != digests[0]]
        if astray:
            raise RankError(
                f"after step {state.step} the parameters of rank {', '.join(map(str, astray))} differ from those of rank 0. "
                "Likely causes: code that changes parameters on one rank alone, or machines with different versions of "
                "torch. No checkpoint of it was written"
            )


ALONE = Ranks()


def join() -> Ranks:
    """This process among those that `torchrun` started, or of the process group that is there; else alone."""
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE") or 1) == 1 or "RANK" not in os.environ:
            return ALONE
        with _connected():
            store, rank, size = next(rendezvous("env://"))
            # torchrun keeps its store over restarts, with the addresses of processes that are gone (pytorch issue 135712);
            # on many machines they do not count restarts alike, and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is the remedy
            one_machine = os.environ.get("GROUP_WORLD_SIZE") == "1"
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") if one_machine else None
            # gloo for tensors in main memory, nccl for those on GPUs, where there are any
            store = PrefixStore(f"inducing, attempt {attempt}", store)
            # torch's optimisers import it in their first step; its functions would then have the group as a default
            # argument, and its threads would outlive `_leave`: one that waits for the GIL at exit aborts the process
            importlib.import_module("torch.distributed.nn")
            dist.init_process_group(store=store, rank=rank, world_size=size)
        atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size())


def is_first() -> bool:
    """Whether this process is the one that should print and write: rank 0, or the only one.

    Example:
        >>> import inducing
        >>> if inducing.distributed.is_first():
        ...     print("one line, however many processes there are")
        one line, however many processes there are
    """
    return join().first


def device() -> torch.device:
    """Where this process should put its network: a GPU of its own, if there are any, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


@contextmanager
def quiet(enabled: bool) -> Iterator[None]:
    """Show no warnings from inside: rank 0 has the same."""
    if not enabled:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        cause = str(error).splitlines()[0].split(". ")[0]
        raise RankError(
            f"another process of this run has ended or cannot be reached ({cause}). Why is in its own error, or in "
            "torchrun's summary, as a signal or an exit code; if there is none, it never made this call, as all must"
        ) from error


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        # its threads end with the last reference to it, which a traceback in a cycle may hold
        gc.collect()


def _device() -> torch.device:
    """Where messages must be for the process group to carry them."""
    return torch.device("cpu" if "cpu:" in dist.get_backend_config() else "cuda")


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_device())


def _as_bytes(message: Tensor) -> bytes:
    return message.cpu().numpy().tobytes()
