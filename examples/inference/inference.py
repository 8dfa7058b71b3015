#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A toy inference server with the memory behaviour, and the function names, of a
real one: weights, a KV cache that takes what is left, activations that come and
go with each step, and, with --leak, a cache that forgets to let go.

It computes nothing. Python 3.8 or later, standard library only.
"""
import argparse
import json
import os
import random
import sys
import threading
import time

from cuda import Driver, OutOfMemoryError, Torch

MIB = 1 << 20
BLOCK_TOKENS = 16
IMAGE_EMBEDDING = 26 * MIB  # of one request with an image


class Linear:
    def __init__(self, gpu, inputs, outputs):
        self.gpu = gpu
        self.create_weights(inputs, outputs)

    def create_weights(self, inputs, outputs):
        self.weight = self.gpu.device(2 * inputs * outputs)  # bfloat16


class Attention:
    def __init__(self, gpu, hidden):
        self.qkv_proj = Linear(gpu, hidden, 3 * hidden)
        self.o_proj = Linear(gpu, hidden, hidden)

    def forward(self, gpu, tokens, hidden):
        out = gpu.async_device(2 * tokens * hidden)
        gpu.matmul(out)
        gpu.compute(out)
        return out


class MLP:
    def __init__(self, gpu, hidden):
        self.gate_up_proj = Linear(gpu, hidden, 5 * hidden)
        self.down_proj = Linear(gpu, 5 * hidden // 2, hidden)

    def forward(self, gpu, tokens, hidden):
        out = gpu.async_device(2 * tokens * hidden * 5)
        gpu.matmul(out)
        gpu.compute(out)
        return out


class DecoderLayer:
    def __init__(self, gpu, hidden):
        self.self_attn = Attention(gpu, hidden)
        self.mlp = MLP(gpu, hidden)

    def forward(self, gpu, tokens, hidden):
        attended = self.self_attn.forward(gpu, tokens, hidden)
        out = self.mlp.forward(gpu, tokens, hidden)
        gpu.copy(out, attended)  # the residual
        attended.free()
        return out


class Model:
    def __init__(self, gpu, layers, hidden):
        self.hidden = hidden
        self.embed_tokens = Linear(gpu, 32000, hidden)
        self.layers = [DecoderLayer(gpu, hidden) for _ in range(layers)]

    def forward(self, gpu, tokens):
        out = None
        for layer in self.layers:
            following = layer.forward(gpu, tokens, self.hidden)
            if out:
                out.free()
            out = following
        return out


class EncoderCache:
    """Embeddings of images, kept until their request has finished."""

    def __init__(self, leak):
        self.leak = leak
        self.entries = {}

    def put(self, request, image, embedding):
        # The bug: a retried request is stored under another key than the one
        # that free() uses. Here every request with an image is retried.
        key = (request.id, image) if self.leak else request.id
        self.entries[key] = embedding

    def free(self, request):
        self.entries.pop(request.id, None)


class VisionEncoder:
    def __init__(self, gpu, cache):
        self.gpu, self.cache = gpu, cache

    def encode_image(self, request, image):
        self.cache.put(request, image, self._embed_patches(image))

    def _embed_patches(self, image):
        return self.gpu.device(IMAGE_EMBEDDING)


class Request:
    def __init__(self, number, rng, is_huge):
        self.id = "req-%d" % number
        self.prompt_tokens = rng.randint(16, 512)
        self.output_tokens = rng.randint(4, 24)
        self.image = "image-%d" % number if number % 5 == 0 else None
        if is_huge:
            self.prompt_tokens *= 100000
        self.tokens = 0


class GPUModelRunner:
    def __init__(self, gpu, options):
        self.gpu, self.options = gpu, options
        self.encoder_cache = EncoderCache(options.leak)
        self.encoder = VisionEncoder(gpu, self.encoder_cache)

    def load_model(self):
        self.model = Model(self.gpu, self.options.layers, self.options.hidden)

    def initialize_kv_cache(self):
        self.kv_caches = self._allocate_kv_cache_tensors()

    def _allocate_kv_cache_tensors(self):
        size = self.options.kv_cache_mib * MIB // self.options.layers
        caches = []
        for _ in range(self.options.layers):
            caches.append(self.gpu.device(size))
        return caches

    def _prepare_inputs(self, requests):
        tokens = sum(r.prompt_tokens if r.tokens == 0 else 1 for r in requests)
        blocks = sum((r.prompt_tokens + r.tokens) // BLOCK_TOKENS + 1 for r in requests)
        staging = self.gpu.pinned(8 * tokens + 4 * blocks)
        input_ids = self.gpu.async_device(8 * tokens)
        block_table = self.gpu.async_device(4 * blocks)
        self.gpu.zero(block_table)
        return tokens, staging, input_ids, block_table

    def execute_model(self, requests):
        for r in requests:
            if r.image and r.tokens == 0:
                self.encoder.encode_image(r, r.image)
        tokens, staging, input_ids, block_table = self._prepare_inputs(requests)
        hidden_states = self.model.forward(self.gpu, tokens)
        logits = self._compute_logits(len(requests))
        for buffer in (staging, input_ids, block_table, hidden_states):
            buffer.free()
        return logits

    def _compute_logits(self, rows):
        logits = self.gpu.async_device(4 * rows * 32000)
        self.gpu.matmul(logits)
        return logits


class Worker:
    """One device of the server."""

    def __init__(self, gpu, device, options):
        if options.stray_context:
            self.warm_up(gpu, device + 1)
        gpu.use(device)
        self.gpu, self.device = gpu, device
        self.model_runner = GPUModelRunner(gpu, options)

    def warm_up(self, gpu, device):
        gpu.retain_only(device)

    def load_model(self):
        self.model_runner.load_model()

    def initialize_from_config(self):
        self.model_runner.initialize_kv_cache()


class OutputProcessor(threading.Thread):
    """Copies results to pinned memory, in a separate thread."""

    def __init__(self, worker):
        threading.Thread.__init__(self, name="output-processor", daemon=True)
        self.worker, self.stop = worker, threading.Event()

    def run(self):
        self.worker.gpu.use_in_thread()
        while not self.stop.wait(0.02):
            self.copy_to_host(random.randint(1, 64))

    def copy_to_host(self, rows):
        self.worker.gpu.pinned(4 * rows * 32000).free()


class EngineCore:
    def __init__(self, worker, options):
        self.worker, self.options = worker, options
        self.rng = random.Random(options.seed + worker.device)
        self.waiting, self.running = [], []
        self.requests = self.finished = self.ooms = 0

    def add_requests(self, until):
        while self.requests < until:
            self.requests += 1
            is_huge = self.options.oom and self.requests % 25 == 0
            self.waiting.append(Request(self.requests, self.rng, is_huge))

    def step(self):
        while self.waiting and len(self.running) < 16:
            self.running.append(self.waiting.pop(0))
        if not self.running:
            return
        try:
            logits = self.worker.model_runner.execute_model(self.running)
        except OutOfMemoryError as e:
            self.abort(e)
            return
        self._update_requests()
        logits.free()

    def _update_requests(self):
        for r in self.running:
            r.tokens += 1
        done = [r for r in self.running if r.tokens >= r.output_tokens]
        self.running = [r for r in self.running if r.tokens < r.output_tokens]
        for r in done:
            self.finished += 1
            self.worker.model_runner.encoder_cache.free(r)

    def abort(self, error):
        """Drops the longest request, as the likely cause."""
        self.ooms += 1
        victim = max(self.running, key=lambda r: r.prompt_tokens)
        self.running.remove(victim)
        self.worker.model_runner.encoder_cache.free(victim)
        if self.ooms <= 3:
            print("device %d: %s: %s aborted" % (self.worker.device, error, victim.id),
                  file=sys.stderr)

    def run_busy_loop(self):
        begin = time.monotonic()
        while time.monotonic() - begin < self.options.seconds:
            self.add_requests(int((time.monotonic() - begin) * self.options.rate))
            self.step()
            time.sleep(self.options.step_ms / 1000)


def serve(device, options):
    gpu = Torch() if options.torch else Driver(options.libcuda)
    worker = Worker(gpu, device, options)
    worker.load_model()
    worker.initialize_from_config()
    output = OutputProcessor(worker)
    output.start()
    engine = EngineCore(worker, options)
    engine.run_busy_loop()
    output.stop.set()
    output.join()
    summary = json.dumps({
        "pid": os.getpid(), "device": device,
        "in_use_bytes": {k: n for k, n in sorted(gpu.counter.in_use.items())},
        "encoder_cache_bytes": IMAGE_EMBEDDING * len(worker.model_runner.encoder_cache.entries),
        "requests": engine.requests, "finished": engine.finished, "ooms": engine.ooms,
    })
    sys.stdout.write(summary + "\n")  # one write: the workers share the output
    sys.stdout.flush()
    if options.hold:
        time.sleep(options.hold)


def main():
    a = argparse.ArgumentParser(description="a toy inference server that uses GPU memory")
    a.add_argument("--libcuda", help="the CUDA driver; default: as the loader finds libcuda.so.1")
    a.add_argument("--torch", action="store_true", help="real tensors instead of driver calls")
    a.add_argument("--seconds", type=float, default=30)
    a.add_argument("--rate", type=float, default=20, help="requests per second and device")
    a.add_argument("--leak", action="store_true", help="each request with an image leaks 26 MiB")
    a.add_argument("--oom", action="store_true", help="some requests are larger than the device")
    a.add_argument("--stray-context", action="store_true",
                   help="a context on the next device, which is not used")
    a.add_argument("--devices", type=int, default=2, help="one worker each; all but one forked")
    a.add_argument("--layers", type=int, default=32)
    a.add_argument("--hidden", type=int, default=3072)
    a.add_argument("--kv-cache-mib", type=int, default=4096)
    a.add_argument("--step-ms", type=float, default=5)
    a.add_argument("--hold", type=float, default=0, help="seconds to live on after the summary")
    a.add_argument("--imports", type=float, default=0,
                   help="seconds to start up in, as a server that imports PyTorch does")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--small", action="store_true", help="one device and a small model, for slow machines")
    options = a.parse_args()
    if options.small:
        options.devices, options.layers, options.hidden, options.kv_cache_mib = 1, 4, 512, 1024

    time.sleep(options.imports)

    # Forked before this process has used the driver, which does not survive it.
    children = []
    for device in range(1, options.devices):
        pid = os.fork()
        if pid == 0:
            try:
                serve(device, options)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        children.append(pid)
    serve(0, options)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1]]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
