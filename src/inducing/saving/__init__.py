"""A model as one safetensors file with a JSON header: safe to open from strangers, since nothing in it is executed."""

from inducing.saving.file import SavedModelError, load, save
from inducing.saving.objects import Savable, decode, encode, register

__all__ = ["Savable", "SavedModelError", "decode", "encode", "load", "register", "save"]
