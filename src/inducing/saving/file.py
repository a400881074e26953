"""The file: safetensors, whose metadata hold a JSON header with the format, the model and a checksum.

    inducing_model = {"format": 1, "library": "0.1.0", "model": {...}, "sha256": "..."}

The checksum finds damage, not tampering: anyone can compute it again. Against tampering all entries and tensors are checked,
and a file can only name classes that are registered.
"""

from __future__ import annotations

import difflib
import json
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from inducing.errors import SavedModelError
from inducing.files import digest, write_atomically
from inducing.saving.objects import decode_object, encode_object
from inducing.saving.registry import Tensors
from inducing.saving.values import shorten

# increased when older versions cannot read what is written
FORMAT = 1
ENTRY = "inducing_model"
# of JSON objects and lists in the header; a module inside a module takes two
LARGEST_DEPTH = 200


def save(model: object, path: str | Path) -> None:
    """Save a model in one file, without pickle. `inducing.load` makes the same model again.

    The file is written atomically: if writing fails, an older file of that name stays as it was.

    Arguments:
        model: A `Network`, a likelihood, frozen functions (`Network.sample_functions`), an estimator, a `Mixture`, a
            `Standardiser`; or a tuple or dictionary of these, of tensors and of plain values. For your own classes see
            `inducing.register`.
        path: The file to write, e.g. "model.safetensors".

    Example:
        >>> import inducing, tempfile, torch
        >>> network = inducing.models.mlp(3, 1, num_inducing=20)
        >>> likelihood = inducing.Gaussian()
        >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
        >>> inducing.save((network, likelihood), path)
        >>> loaded_network, loaded_likelihood = inducing.load(path)
    """
    node, tensors = encode_object(model)
    _check_depth(node)
    # copies, since tensors may share memory, which safetensors refuses
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    header: dict[str, Any] = {"format": FORMAT, "library": _version(), "model": node}
    header["sha256"] = digest(header, tensors)
    # one entry: safetensors writes several in any order, and the same model should give the same file
    write_atomically(Path(path), to_bytes(tensors, {ENTRY: json.dumps(header, allow_nan=False)}))


def load(path: str | Path) -> Any:
    """Load the model that `inducing.save` saved: a network, a pair of network and likelihood, an estimator, ...

    Tensors are on the CPU. Nothing in the file is executed, and sizes are compared with those of the file before memory is
    allocated. An invalid file raises `SavedModelError` with the reason; a file that cannot be read raises OSError.

    Arguments:
        path: A file that `inducing.save` wrote.
    """
    path = Path(path)
    if path.is_fifo() or path.is_socket() or path.is_char_device() or path.is_block_device():
        # reading might never end
        raise SavedModelError(f"{path} is not a regular file. Give the path of a file that inducing.save wrote")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist{_similar_files(path)}")
    with path.open("rb") as file:
        # raises OSError if the file cannot be read
        file.read(1)
    try:
        header, tensors = _read(path)
        return decode_object(header["model"], tensors)
    except ImportError:
        # an optional package is missing
        raise
    except Exception as error:
        # any error here is caused by the file, also a MemoryError or RecursionError
        reason = str(error).partition("\nException raised from")[0] or type(error).__name__
        raise SavedModelError(f"{path} cannot be loaded: {reason}") from error


def _similar_files(path: Path) -> str:
    """Name up to three files in the folder of ``path`` that have a similar name or the same suffix, for a message."""
    try:
        files = sorted(file.name for file in path.parent.iterdir() if file.is_file())
    except OSError:
        # there is no such folder, or it cannot be listed
        return ""
    same_suffix = [name for name in files if path.suffix and name.endswith(path.suffix)]
    similar = list(dict.fromkeys([*difflib.get_close_matches(path.name, files), *same_suffix]))[:3]
    return f". Similar files in this folder: {', '.join(similar)}" if similar else ""


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a file, if they match the checksum."""
    try:
        opened = safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it is not a model file, since it is not a complete safetensors file ({error})") from error
    with opened as file:
        entries = file.metadata() or {}
        if ENTRY not in entries:
            checkpoint = " (it is a checkpoint of inducing.fit)" if "inducing" in entries else ""
            raise ValueError(f"it is a safetensors file that inducing.save did not write{checkpoint}")
        header = json.loads(entries[ENTRY], parse_constant=_refuse_constant)
        _check_format(header)
        _check_depth(header)
        # copies: a memory-mapped file could change later
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    if header.pop("sha256", None) != digest(header, tensors):
        raise ValueError("its checksum does not match: the file is damaged or was changed")
    if header.keys() != {"format", "library", "model"}:
        raise ValueError(f"its header has the entries {shorten(sorted(header))}")
    return header, tensors


def _check_format(header: Any) -> None:
    found, library = (header.get("format"), header.get("library")) if isinstance(header, dict) else (None, None)
    if type(found) is not int or not 1 <= found <= FORMAT:
        written = f"its format is {shorten(found)}, written by inducing {shorten(library)}"
        raise ValueError(f"{written}. This version, {_version()}, reads formats 1 to {FORMAT}; upgrade inducing")


def _check_depth(node: Any) -> None:
    """Refuse nesting that would exceed Python's recursion limit when the model is used."""
    level = [node]
    for _ in range(LARGEST_DEPTH):
        parents = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [child for children in parents for child in children]
    if level:
        raise ValueError(f"its parts are nested more than {LARGEST_DEPTH} levels deep")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"its header contains {text}, which is not valid JSON")


def _version() -> str:
    try:
        return metadata.version("inducing")
    except metadata.PackageNotFoundError:
        # run from the source folder without installation
        return "unknown"
