"""Milliseconds per token of transformers continuing one text, with a random Llama of the same sizes."""

import json
import sys
import time

import torch
import transformers

settings = json.loads(sys.argv[1])
torch.set_num_threads(settings["cores"])
torch.set_default_device(settings["device"])
torch.set_default_dtype(getattr(torch, settings["dtype"]))
config = transformers.LlamaConfig(
    vocab_size=settings["vocabSize"],
    hidden_size=settings["width"],
    intermediate_size=settings["mlpWidth"],
    num_hidden_layers=settings["numLayers"],
    num_attention_heads=settings["numHeads"],
    num_key_value_heads=settings["numKvHeads"],
    tie_word_embeddings=True,
)
model = transformers.LlamaForCausalLM(config).eval()
times = []


class Clock(transformers.StoppingCriteria):
    def __call__(self, *_args, **_options):
        times.append(time.perf_counter())
        return False


prompt = torch.arange(3, 19).reshape(1, -1)
length = settings["tokens"]
model.generate(prompt, max_new_tokens=length, min_new_tokens=length, do_sample=False, stopping_criteria=[Clock()])
steps = sorted(b - a for a, b in zip(times[2:], times[3:]))
print(steps[len(steps) // 2] * 1e3)
