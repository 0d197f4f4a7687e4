"""Local limits: where descent converges once the attention has selected its tokens."""
