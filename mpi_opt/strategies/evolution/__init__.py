"""Children of the best trials: crossover, mutation, niches, and the choice of the most promising child."""
