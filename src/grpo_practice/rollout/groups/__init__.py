"""Groups of rollouts: their plan, whether they teach, and the sums that a step stores."""
