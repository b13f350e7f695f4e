"""What benchmarks/fuzz.py is made of: mutations, doors that take the mutated inputs, and guards around them."""
