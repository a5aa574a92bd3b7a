"""The messages between the coordinator and the workers, and the links that carry them."""
