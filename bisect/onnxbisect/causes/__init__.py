"""Why units are refused: what the refused ones have in common and nothing that passed has. Costs no compiler call."""
