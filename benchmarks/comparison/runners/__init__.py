"""The systems that benchmarks.peers compares, one program each, most of them run in the peers' environment."""
