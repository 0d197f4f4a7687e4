"""The behaviour of attention on inputs that it was not trained on."""
