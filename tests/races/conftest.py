"""The kit of the script tests."""

from tests.lua.conftest import kit

__all__ = ["kit"]
