"""The parts of benchmarks.fuzz: mutations, targets that read the mutated inputs, and guards around them."""
