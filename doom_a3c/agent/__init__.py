"""The agent: network, policy, player, rollouts and learner."""
