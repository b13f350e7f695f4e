"""The mathematics of learning: pure functions of arrays and tensors, and the optimizers."""
