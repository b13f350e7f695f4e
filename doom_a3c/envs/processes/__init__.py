"""Game servers: their processes, supervision and shared memory."""
