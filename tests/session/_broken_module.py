"""A module that cannot be imported, for hooks that are looked for in it."""

raise RuntimeError("RuntimeError here")
