"""The store: events, messages and deliveries in Redis.

Knows nothing of workflow code. `worker` imports this package, never the other way round.
"""
