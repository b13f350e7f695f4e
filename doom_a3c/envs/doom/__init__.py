"""Doom: ViZDoom engines as Gymnasium environments."""
