"""The second paper: attention trained on texts, against their max-margin problems."""
