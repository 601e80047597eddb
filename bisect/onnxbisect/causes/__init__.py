"""Find why units are refused: what refused units have in common and no passing unit has. Makes no compiler call."""
