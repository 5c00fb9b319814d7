# SPDX-License-Identifier: Apache-2.0
"""A vLLM server without a model to run: the routes of VLLM_SERVER_DEV_MODE as each generation has them, over doubles of its
workers, each with parameters of its own. A process: it can be killed.

    python serve.py GENERATION RANKS FILE [extension]       FILE gets the port; GET /parameters says what ranks hold"""
import argparse
import http.server
import json
import os
import pathlib
import sys
import threading
import urllib.parse

import engines_double
import pytest
import torch
import vllm_double

import weft.engines
import weft.vllm

# of the parameters, all zero at first; $WEFT_DOUBLE_SHAPES is a JSON file with others
SHAPES = {"embed": (8, 16), "layer.weight": (32, 16), "layer.bias": (32,)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        given = os.environ.get("WEFT_DOUBLE_SHAPES")
        for name, shape in (json.loads(pathlib.Path(given).read_text()) if given else SHAPES).items():
            *above, last = name.split(".")
            module = self
            for part in above:
                if part not in module._modules:
                    module.add_module(part, torch.nn.Module())
                module = module._modules[part]
            module.register_parameter(last, torch.nn.Parameter(torch.zeros(shape), requires_grad=False))


class Server:
    def __init__(self, generation, ranks, extension=False):
        monkeypatch = pytest.MonkeyPatch()
        self.double = vllm_double.put(monkeypatch, generation)
        monkeypatch.setattr(weft.engines, "Receiver", engines_double.Receiver)
        weft.vllm.register()
        workers = vllm_double.Worker
        if extension:
            workers = type("Extended", (vllm_double.Worker, weft.vllm.WorkerExtension), {})
        self.workers = [workers(self.double, Model(), None if extension else "weft", rank) for rank in range(ranks)]
        for rank, worker in enumerate(self.workers):  # ranks of one process have one description: each is told its own place
            worker.place = rank
        self.paused, self.version, self.log = False, "default", []

    def rpc(self, method, arguments_of):
        """On all workers at once; the first failure, when all have ended."""
        results, failures = [None] * len(self.workers), []

        def one(i):
            try:
                results[i] = getattr(self.workers[i], method)(*arguments_of(i))
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(self.workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return results

    def placed(self, endpoint):
        return lambda i: ({**endpoint, "rank_offset": endpoint.get("rank_offset", 0) + i},)

    def post(self, path, query, body):
        self.log.append(path)
        number = self.double.number
        if path == "/pause":
            self.paused = True
        elif path == "/resume":
            self.paused = False
        elif path == "/init_weight_transfer_engine":
            self.rpc("init_weight_transfer_engine", self.placed(body["init_info"]))
        elif path == "/start_weight_update" and number >= (0, 22):
            given = () if number >= (0, 27) else (body.get("is_checkpoint_format", True),)
            self.rpc("start_weight_update", lambda i: given)
        elif path == "/update_weights":
            self.rpc("update_weights", lambda i: (body["update_info"],))
        elif path == "/finish_weight_update" and number >= (0, 22):
            self.rpc("finish_weight_update", lambda i: ())
            if number >= (0, 27) and body.get("weight_version") is not None:
                self.version = body["weight_version"]
        elif path == "/shutdown_weight_transfer_engine" and number >= (0, 33):
            self.rpc("shutdown_weight_transfer_engine", lambda i: ())
        elif path == "/collective_rpc":
            given = body.get("args", [])
            one = self.placed(given[0]) if body["method"] == "weft_init" else lambda i: tuple(given)
            return {"results": [each if isinstance(each, (dict, list, type(None))) else str(each)
                                for each in self.rpc(body["method"], one)]}
        elif path == "/reset_prefix_cache":
            pass
        else:
            raise LookupError(path)
        return {"message": "done"}

    def get(self, path, query):
        if path == "/health":
            return {}
        if path == "/v1/models":
            return {"data": [{"id": "double", "max_model_len": 64}]}
        if path == "/get_world_size":
            return {"world_size": len(self.workers)}
        if path == "/weight_info" and self.double.number >= (0, 27):
            return {"weight_version": self.version}
        if path == "/parameters":
            return [{name: float(value.float().mean()) for name, value in worker.model_runner.model.named_parameters()}
                    for worker in self.workers]
        if path == "/log":
            return {"log": self.log, "paused": self.paused}
        raise LookupError(path)

    def handler(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, function):
                try:
                    code, said = 200, function()
                except LookupError:
                    code, said = 404, {"detail": "Not Found"}
                except BaseException as error:
                    code, said = 500, {"error": {"message": str(error), "type": type(error).__name__}}
                data = json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                url = urllib.parse.urlsplit(self.path)
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.answer(lambda: server.post(url.path, url.query, json.loads(data) if data else {}))

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                self.answer(lambda: server.get(url.path, url.query))

            def log_message(self, *arguments):
                pass
        return Handler

    def http(self):
        return http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("generation")
    parser.add_argument("ranks", type=int)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("extension", nargs="?")
    arguments = parser.parse_args()
    serving = Server(arguments.generation, arguments.ranks, bool(arguments.extension)).http()
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    new = arguments.file.with_suffix(".new")
    new.write_text(str(serving.server_address[1]))
    new.rename(arguments.file)
    serving.serve_forever()


def _end_with_parent(parent):
    import time
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
