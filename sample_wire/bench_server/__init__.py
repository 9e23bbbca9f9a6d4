"""`sample-wire bench server`: collecting samples beside dumping records, under load.

Agents, a trainer and a prober of /health, each a process of its own, talk over loopback to the
real session server in front of the embedded engine's replay mode.  Both ways to get a session's
sample are taken in one run, and have to give the same sample before a figure is told.
Needs the extra `server`.
"""
