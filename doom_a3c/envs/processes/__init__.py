"""Game servers: processes of their own, their supervision and shared memory."""
