"""Reads what shardwise wrote: models with transformers, and adapters with PEFT.

usage: exported.py FOLDER, where FOLDER/NAME is a model of models.py, FOLDER/NAME/exported the same from shardwise, and
FOLDER/llama2/adapters are adapters with the logits in adapters.json.
"""

import json
import os
import sys

import peft
import torch
import transformers

root = sys.argv[1]
for name in sorted(os.listdir(root)):
    path = os.path.join(root, name)
    if not os.path.isdir(os.path.join(path, "exported")):
        continue
    with open(os.path.join(path, "expected.json")) as file:
        expected = json.load(file)
    before = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    after = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(path, "exported"), dtype=torch.float32)
    pairs = zip(before.state_dict().items(), after.state_dict().items())
    same = all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)
    if name != "xlstm":
        after.set_attn_implementation("eager")
    with torch.no_grad():
        logits = after(torch.tensor(expected["tokens"]), use_cache=False).logits.flatten()
    difference = (logits - torch.tensor(expected["logits"])).abs().max().item()
    print(json.dumps(dict(name=name, same=same, difference=difference)), flush=True)

path = os.path.join(root, "llama2")
with open(os.path.join(path, "adapters.json")) as file:
    expected = json.load(file)
model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
model = peft.PeftModel.from_pretrained(model, os.path.join(path, "adapters"))
with torch.no_grad():
    logits = model(torch.tensor(expected["tokens"])).logits.flatten()
difference = (logits - torch.tensor(expected["logits"])).abs().max().item()
print(json.dumps(dict(name="adapters", same=True, difference=difference)))
