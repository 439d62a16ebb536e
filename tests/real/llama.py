"""Serve a GGUF file by llama.cpp: `python -m tests.real.llama GGUF PORT SLOTS`."""

import signal
import sys

import xllamacpp


def serve(gguf: str, port: int, slots: int) -> None:
    """Serve until the process is told to end; `slots` requests are computed together."""
    settings = xllamacpp.CommonParams()
    settings.model.path = gguf
    settings.model_alias = {"smollm2-135m-instruct"}
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_parallel, settings.n_ctx = slots, 4096 * slots
    # One thread: more of them wait for each other wherever something else needs the cores.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.offline, settings.ui, settings.fit_params = True, False, False
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)  # noqa: T201
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
