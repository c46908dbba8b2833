"""Figures of this machine: ours beside the floor and beside peers. ``python -m bench``."""
