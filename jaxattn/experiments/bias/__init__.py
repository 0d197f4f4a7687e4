"""Which max-margin problem a way of training obeys: optimizers, parameterizations and schedules, norm by norm."""
