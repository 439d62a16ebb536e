"""Groups of rollouts by themselves: which are planned, which teach, what a step has of them."""
