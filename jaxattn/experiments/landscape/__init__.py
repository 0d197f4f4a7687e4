"""Global behaviour: which tokens are selected from any start, and what the risk looks like."""
