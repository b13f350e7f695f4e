"""Pure functions of arrays and tensors."""
