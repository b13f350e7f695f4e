"""doom_a3c: asynchronous advantage actor-critic agents for games seen as pixels."""

__version__ = "0.1.0"
