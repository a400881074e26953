"""A model as one safetensors file with a JSON header: safe to open from strangers, since nothing in it is executed."""

from inducing.saving.file import SavedModelError, load, save
from inducing.saving.objects import Savable, decode, encode, register, register_by

__all__ = ["Savable", "SavedModelError", "decode", "encode", "load", "register", "register_by", "save"]
