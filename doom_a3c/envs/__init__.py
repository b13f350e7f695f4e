"""Games, as Gymnasium environments."""
