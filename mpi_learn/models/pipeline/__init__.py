"""A model in stages: each rank holds some of its layers, and micro-batches pass from stage to stage."""
