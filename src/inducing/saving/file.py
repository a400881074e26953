"""The file: safetensors, whose metadata hold a JSON header with the format, what the model is, and a checksum.

    inducing_model = {"format": 1, "library": "0.1.0", "model": {...}, "sha256": "..."}

The checksum finds damage, not malice: whoever changes a file can compute it anew. Against malice stand the checks of all
entries and tensors, and that nothing in a file can name code outside the library's own lists.
"""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from inducing.files import write_atomically
from inducing.saving.networks import Tensors
from inducing.saving.objects import decode, encode
from inducing.saving.specifications import shown

# raised when an older version could not read what is written
FORMAT = 1
ENTRY = "inducing_model"
# of JSON objects and lists in the header; a module inside a module takes two
LARGEST_DEPTH = 200


class SavedModelError(ValueError):
    """A file is not a saved model that this version can load: truncated, foreign, newer, damaged or tampered with."""


def save(model: object, path: str | Path) -> None:
    """Save a model in one file, from which `inducing.load` makes the same again, without anyone's code and without pickle.

    The file is written atomically: if that fails, an older file of that name stays as it was.

    Arguments:
        model: A `Network`, a likelihood, frozen functions (`Network.sample_functions`), an estimator, a `Standardiser`; or a
            tuple or dictionary of such things, of tensors and of plain values. Tensors come back on the CPU.
        path: Where to, e.g. "model.safetensors".

    Example:
        >>> import inducing, tempfile, torch
        >>> network, likelihood = inducing.models.mlp(3, 1, num_inducing=20), inducing.Gaussian()
        >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
        >>> inducing.save((network, likelihood), path)
        >>> network_again, likelihood_again = inducing.load(path)
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to save a model in; make it first")
    node, tensors = encode(model)
    _check_depth(node)
    # copies, since tensors may share memory, which safetensors refuses
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    header: dict[str, Any] = {"format": FORMAT, "library": _version(), "model": node}
    header["sha256"] = _digest(header, tensors)
    # one entry: safetensors would write several in any order, and the same model should give the same file
    write_atomically(path, to_bytes(tensors, {ENTRY: json.dumps(header, allow_nan=False)}))


def load(path: str | Path) -> Any:
    """Load what `inducing.save` was given: a network, a pair of network and likelihood, an estimator, ...

    Nothing in the file is executed, and nothing is allocated before it was compared with the size of the file. A file that
    is not sound raises `SavedModelError`, with the reason; one that cannot be read, OSError.

    Arguments:
        path: A file that `inducing.save` wrote.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {path}")
    if path.is_fifo() or path.is_socket() or path.is_char_device() or path.is_block_device():
        # reading might never end
        raise SavedModelError(f"{path} is not a regular file. Give the path of a file that inducing.save wrote")
    with path.open("rb") as file:
        # what cannot be opened raises OSError by itself
        file.read(1)
    try:
        header, tensors = _read(path)
        return decode(header["model"], tensors)
    except (RecursionError, MemoryError) as error:
        size = "too deep" if isinstance(error, RecursionError) else "too large for the memory of this machine"
        raise SavedModelError(f"{path} cannot be loaded: what it describes is {size}") from error
    except Exception as error:
        # whatever goes wrong while a file is read is the file's fault; the cause stays attached
        reason = str(error).partition("\nException raised from")[0] or type(error).__name__
        raise SavedModelError(f"{path} cannot be loaded: {reason}") from error


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a file, if they are those that were written."""
    try:
        opened = safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it is not a whole safetensors file ({error})") from error
    with opened as file:
        entries = file.metadata() or {}
        if ENTRY not in entries:
            checkpoint = " (it is a checkpoint of inducing.fit)" if "inducing" in entries else ""
            raise ValueError(f"it is a safetensors file that inducing.save did not write{checkpoint}")
        header = json.loads(entries[ENTRY], parse_constant=_refuse_constant)
        _check_format(header)
        _check_depth(header)
        # copies in memory: a mapped file could change below the model
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    if header.pop("sha256", None) != _digest(header, tensors):
        raise ValueError("its checksum does not match: it was damaged, or changed by hand")
    if header.keys() != {"format", "library", "model"}:
        raise ValueError(f"its header has the entries {shown(sorted(header))}")
    return header, tensors


def _check_format(header: Any) -> None:
    found = header.get("format") if isinstance(header, dict) else None
    if type(found) is not int or found < 1:
        raise ValueError(f"its header has no format number but {shown(found)}")
    if found > FORMAT:
        raise ValueError(
            f"it has format {found}, written by inducing {shown(header.get('library'))}, and this version, {_version()}, "
            f"reads up to {FORMAT}; upgrade inducing"
        )


def _check_depth(node: Any) -> None:
    """Refuse nesting that Python could not follow when the model is used."""
    level = [node]
    for _ in range(LARGEST_DEPTH):
        parents = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [child for children in parents for child in children]
    if level:
        raise ValueError(f"its parts are nested more than {LARGEST_DEPTH} levels deep")


def _digest(header: dict[str, Any], tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"its header holds {text}, which is not a number in JSON")


def _version() -> str:
    try:
        return metadata.version("inducing")
    except metadata.PackageNotFoundError:
        # run from its source without being installed
        return "unknown"
