# SPDX-License-Identifier: Apache-2.0
"""A small model with random weights in vLLM, in this process; nothing is downloaded. See
workload.py."""
import json
import os
import sys

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "float16",
    "bos_token_id": 1, "eos_token_id": 2,
}


def serve():
    import torch
    from vllm import LLM, SamplingParams

    os.makedirs("model", exist_ok=True)  # in the kit's temporary directory
    with open("model/config.json", "w") as f:
        json.dump(CONFIG, f)
    model = LLM("model", load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, gpu_memory_utilization=0.1)
    model.generate({"prompt_token_ids": list(range(3, 19))}, SamplingParams(max_tokens=8, detokenize=False))
    torch.cuda.synchronize()
    globals()["model"] = model
    return {"allocated": torch.cuda.memory_allocated()}


def main():
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["HF_HUB_OFFLINE"] = "1"
    for command in sys.stdin:
        answer = {"result": 0}
        try:
            if command.strip() == "init":
                import torch

                torch.cuda.init()
                torch.cuda.current_device()
            elif command.strip() == "serve":
                answer.update(serve())
        except Exception as e:  # the kit reports it
            answer = {"result": 1, "error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), flush=True)


main()
