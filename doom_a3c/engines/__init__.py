"""Ways of putting workers and learner together."""
