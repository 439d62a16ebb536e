"""The command line: parse, load, call one function, show."""
