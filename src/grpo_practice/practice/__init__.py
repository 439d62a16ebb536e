"""The method: plan, distil, merge, and the loop that turns practice into a library."""
