"""Local limits: where descent goes once the attention has settled on its tokens."""
