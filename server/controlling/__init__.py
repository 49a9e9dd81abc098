"""A controller that serves: `serving.py` (its phases), `watching.py` (sessions, fencing and elections by its
clock)."""
