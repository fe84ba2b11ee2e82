"""Writes random adapters of PEFT for the stored llama3, with the logits of the adapted model.

usage: adapters.py FIXTURES
"""

import json
import os
import sys

import peft
import torch
import transformers

root = sys.argv[1]
with open(os.path.join(root, "llama3", "expected.json")) as file:
    tokens = torch.tensor(json.load(file)["tokens"])
for name, dora in [("lora", False), ("dora", True)]:
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(root, "llama3"), dtype=torch.float32)
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj", "o_proj", "down_proj"], use_dora=dora, init_lora_weights=True, task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.normal_(std=0.3)
            if "magnitude" in key:
                p.mul_(1.3)
    path = os.path.join(root, "llama3-" + name)
    model.save_pretrained(path)
    os.remove(os.path.join(path, "README.md"))
    with torch.no_grad():
        logits = model(tokens).logits.flatten().tolist()
    with open(os.path.join(path, "expected.json"), "w") as file:
        json.dump([float(f"{x:.8g}") for x in logits], file)
