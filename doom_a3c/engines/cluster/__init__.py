"""The cluster engine: hosts that play and learn, a parameter server, and a driver that keeps them going."""
