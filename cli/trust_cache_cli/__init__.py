"""The command line of trust-cache: parse, call one library function, print."""
