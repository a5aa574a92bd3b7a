"""Models of the frameworks behind one interface: flat weights, gradient, evaluate, save."""
