"""The systems that benchmarks.peers compares, each a program of its own, most of them in the peers' environment."""
