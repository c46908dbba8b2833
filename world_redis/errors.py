"""The store's troubles as exceptions. Ordinary answers (see events.Answer) are values, not exceptions."""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything the store raises."""


class StoreUnavailable(StoreError):
    """The server could not be reached, or stayed busy, for longer than the caller was willing to wait."""


class UnsafeServer(StoreError):
    """The server would lose data or is too old; the message names the setting and the cure."""


class AccessRefused(StoreError):
    """The server does not let this user in, or not do this: wrong password, or an ACL without the command or
    key. Waiting would not help."""


class LayoutMismatch(StoreError):
    """The namespace on this server was written with another key layout."""


class LeaseMismatch(StoreError):
    """The namespace runs with another WORKFLOW_INLINE_OWNERSHIP_LEASE_SECONDS."""


class ScriptError(StoreError):
    """A script failed. This is a bug of ours, not of the caller."""
