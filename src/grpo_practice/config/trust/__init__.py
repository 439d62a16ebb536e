"""The one rule of trust: what files of others may do, and where keys of the user's may go.

The user's own are files named by `--config`, what these include, values from Python and flags,
configs of runs that began on this machine, and all in a folder that the user trusts. An agent's
file (`--agent`) and the configs in any other database are of others. Such a file is data:

- It names no program, no file and no variable, except the variables of a model's endpoint
  (`foreign.py`), until the user gives a word for its text.
- A key goes to a host only if the user's own files or environment name that host beside the key
  (`keys.py`), or the user gives a word for this host and key.
- Laid over a config of the user's, it takes none of that config's secrets elsewhere (`foreign.py`).

`word.py` keeps the user's words. All others ask; docs/security.md says the same to users.
"""
