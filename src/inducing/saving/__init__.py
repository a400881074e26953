"""A model as one safetensors file with a JSON header. Nothing in a file is executed, so files of others are safe to open."""

from inducing.saving.file import load, save
from inducing.saving.registry import Composite, Savable, register, register_later

__all__ = ["Composite", "Savable", "load", "register", "register_later", "save"]
