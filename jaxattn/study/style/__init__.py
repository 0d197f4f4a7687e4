"""How figures look: the style, the page, and the files they are saved to."""
