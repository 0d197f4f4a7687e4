"""Which max-margin problem a training method obeys: optimizers, parameterizations and schedules, norm by norm."""
