"""The demo: a rollout on this machine, or a recorded one that goes through the wire."""
