"""What attention makes of inputs that it was not trained on."""
