"""The parts of benchmarks.fuzz: mutations, doors that read the mutated inputs, and guards around them."""
