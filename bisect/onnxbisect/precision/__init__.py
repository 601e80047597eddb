"""The fewest nodes that must stay in high precision so that the numbers are right (docs/precision.md)."""
