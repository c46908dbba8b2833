"""What users write and meet: the registry, calls, client, streams, errors and values."""
