"""The blocks of ranks: forming them, giving them up, and the clock and signs by which they are judged."""
