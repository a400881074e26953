"""Communication between processes that train one model, started by `torchrun` on one or several machines.

A process is a rank. All ranks run the same script. `fit` and `predict` divide their work over the ranks (see division.py).
Only rank 0 shows progress, calls callbacks and writes files. Tensors are sent in binary form, all other values as JSON.
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

from inducing.errors import RankError
from inducing.files import tensor_bytes
from inducing.inference.identity import differences


@dataclass(frozen=True)
class Ranks:
    """This process and the number of all processes. Each method must be called by all ranks, except `first`.

    Arguments:
        rank: Number of this process, starting at 0.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which shows progress and writes files."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum a tensor over all ranks, in place. The result is bitwise the same on each rank."""
        if self.size > 1:
            with _connected():
                dist.all_reduce(values)
        return values

    def maximum(self, *values: int) -> list[int]:
        """Return the maximum of each number over all ranks."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, device=_device())
        with _connected():
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.tolist()

    def broadcast(self, value: Any) -> Any:
        """Return the JSON value of rank 0."""
        return value if self.size == 1 else json.loads(self._send(json.dumps(value).encode()))

    def broadcast_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of rank 0."""
        if self.size == 1:
            return tensors
        return load(self._send(save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})))

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all ranks, in their order."""
        if self.size == 1:
            return [value]
        content = json.dumps(value).encode()
        (longest,) = self.maximum(len(content))
        # all messages must have the same length; JSON may end in spaces
        own = _as_tensor(content.ljust(longest))
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        with _connected():
            dist.all_gather(everyone, own)
        return [json.loads(_as_bytes(each)) for each in everyone]

    def agree(self, values: dict[str, Any], hint: str) -> None:
        """Raise RankError unless all ranks have the same values."""
        theirs = self.gather(values)
        for rank, other in enumerate(theirs):
            if other != theirs[0]:
                raise RankError(
                    f"rank {rank} has other arguments than rank 0: {', '.join(differences(other, theirs[0]))}. "
                    f"Pass all data and the same settings to all processes: {hint}"
                )

    def concatenate(self, values: Tensor, axis: int, lengths: list[int]) -> Tensor:
        """Concatenate the tensors of all ranks along an axis, where rank r has length ``lengths[r]``."""
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

    def check_equal(self, tensors: list[Tensor], step: int) -> None:
        """Raise RankError unless all ranks have bitwise the same tensors."""
        if self.size == 1:
            return
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor_bytes(tensor))
        digests = self.gather(digest.hexdigest())
        different = [str(rank) for rank, each in enumerate(digests) if each != digests[0]]
        if different:
            raise RankError(
                f"after step {step} the parameters of rank {', '.join(different)} differ from those of rank 0, and no "
                "checkpoint was written. Use the same version of torch on all machines, and do not change parameters on "
                "one rank only"
            )

    def _send(self, content: bytes) -> bytes:
        """Return the bytes of rank 0."""
        if self.size == 1:
            return content
        (length,) = self.maximum(len(content) if self.first else 0)
        message = _as_tensor(content) if self.first else torch.empty(length, dtype=torch.uint8, device=_device())
        with _connected():
            dist.broadcast(message, 0)
        return _as_bytes(message)


ALONE = Ranks()


def join() -> Ranks:
    """Join the processes started by `torchrun`, or the existing process group. Without either, return `ALONE`."""
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE") or 1) == 1 or "RANK" not in os.environ:
            return ALONE
        with _connected():
            store, rank, size = next(rendezvous("env://"))
            # torchrun keeps its store over restarts, with the addresses of dead processes (pytorch issue 135712). Several
            # machines may count restarts differently; there TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 helps
            one_machine = os.environ.get("GROUP_WORLD_SIZE") == "1"
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") if one_machine else None
            store = PrefixStore(f"inducing, attempt {attempt}", store)
            # torch's optimisers import this module in their first step. If the process group existed then, the module would
            # keep it as a default argument. Its threads would outlive `_leave`, and a thread that waits for the GIL at exit
            # aborts the process
            importlib.import_module("torch.distributed.nn")
            # the default backends: gloo for tensors in main memory, nccl for tensors on GPUs
            dist.init_process_group(store=store, rank=rank, world_size=size)
        atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size())


def is_first() -> bool:
    """Return whether this process is rank 0, or the only process. Use it to print and write files once.

    Example:
        >>> import inducing
        >>> if inducing.distributed.is_first():
        ...     print("printed by one process")
        printed by one process
    """
    return join().first


def device() -> torch.device:
    """Return the device for the network of this process: its own GPU if there are GPUs, otherwise the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


@contextmanager
def hide_warnings(enabled: bool) -> Iterator[None]:
    """Hide warnings inside a ``with`` block, for ranks other than 0, which would repeat the warnings of rank 0."""
    if not enabled:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _connected() -> Iterator[None]:
    """Convert errors of torch.distributed to RankError."""
    try:
        yield
    except RuntimeError as error:
        cause = str(error).splitlines()[0].split(". ")[0]
        raise RankError(
            f"another process of this run has ended, cannot be reached or did not make this call ({cause}). See its error "
            "message, or its signal or exit code in the summary of torchrun"
        ) from error


def _leave() -> None:
    if dist.is_initialized():
        # the threads of the process group end with the last reference to the backend. If the process group has it, torch 2.6
        # waits for them and keeps the GIL, and hangs if one of them needs the GIL to free its last message. If Python has
        # it, torch waits without the GIL
        backend = dist.distributed_c10d._get_default_group()._get_backend(_device())
        dist.destroy_process_group()
        # the process group may be in a traceback in a reference cycle
        gc.collect()
        del backend


def _device() -> torch.device:
    """Return the device of messages that the backend of the process group can send."""
    return torch.device("cpu" if "cpu:" in dist.get_backend_config() else "cuda")


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_device())


def _as_bytes(message: Tensor) -> bytes:
    return message.cpu().numpy().tobytes()
