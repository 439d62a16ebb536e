"""The command line: each command parses its options, calls one function and shows the result."""
