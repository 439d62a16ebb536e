"""The trust rule: the limits for third-party files, and the hosts that may receive the user's keys.

The user's own configs are files named by `--config` and their includes, values from Python and
flags, configs of runs that started on this machine, and all files in a folder that the user trusts.
An agent's file (`--agent`) and the configs in any other database are third-party files. Such a file
is data:

- It cannot name programs, files or variables, except the variables of a model's endpoint
  (`foreign.py`), until the user trusts its text.
- A key goes to a host only if the user's own files or environment name that host together with
  the key (`keys.py`), or the user trusts this host with this key.
- Laid over one of the user's configs, it cannot send that config's secrets elsewhere
  (`foreign.py`).

`word.py` stores the user's decisions; all other modules query it. docs/security.md explains the
rule to users.
"""
