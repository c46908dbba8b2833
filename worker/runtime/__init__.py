"""Doing: the body loop, sessions, deliveries. Reaches the outside only through its ports."""
