"""Internal: how many threads the linear algebra of NumPy and SciPy uses."""

from threadpoolctl import threadpool_limits


def one_thread() -> threadpool_limits:
    """Return a context in which BLAS uses one thread: several would wait for each other, and change the last digits."""
    return threadpool_limits(1, user_api="blas")
