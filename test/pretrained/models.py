"""Writes a tiny random model of every family, with the logits, loss and gradients that transformers computes.

usage: models.py FOLDER [--stored] [FAMILY …]

--stored writes the fixtures of the everyday tests: smaller ones in bfloat16, with two numbers instead of the gradients.
"""

import copy
import json
import os
import sys

import torch
import transformers as t

stored = "--stored" in sys.argv
vocabulary = 16 if stored else 48
small = dict(
    vocab_size=vocabulary, hidden_size=16, intermediate_size=16 if stored else 24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
xlstm = dict(
    vocab_size=vocabulary, hidden_size=16, num_hidden_layers=2, num_heads=2, qk_dim_factor=0.5, ffn_round_up_to_multiple_of=8,
    mode="train", chunk_size=8, return_last_states=True, autocast_kernel_dtype="float32",
)

families = {
    "llama2": lambda: t.LlamaForCausalLM(t.LlamaConfig(**{**small, "num_key_value_heads": 4})),
    "llama3": lambda: t.LlamaForCausalLM(t.LlamaConfig(**small, rope_theta=500000.0, rope_scaling=llama3, tie_word_embeddings=True)),
    "llamaBiased": lambda: t.LlamaForCausalLM(t.LlamaConfig(**small, attention_bias=True, mlp_bias=True, head_dim=8)),
    "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**small, sliding_window=5)),
    "mixtral": lambda: t.MixtralForCausalLM(t.MixtralConfig(**small, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**small, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**small, head_dim=8, rope_scaling=yarn)),
    "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**{**small, "num_hidden_layers": 3}, head_dim=8, sliding_window=4, query_pre_attn_scalar=12)),
    "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**{**small, "num_hidden_layers": 7}, head_dim=8, sliding_window=4, query_pre_attn_scalar=12)),
    "phi": lambda: t.PhiForCausalLM(t.PhiConfig(**{**small, "num_key_value_heads": 4}, partial_rotary_factor=0.5)),
    "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**small)),
    "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=vocabulary, n_embd=16, n_layer=2, n_head=4, n_positions=32, bos_token_id=1, eos_token_id=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)),
    "xlstm": lambda: t.xLSTMForCausalLM(t.xLSTMConfig(**xlstm)),
}


def write(folder, name):
    torch.manual_seed(len(name))
    model = families[name]().float().train()
    # Other implementations leave out soft caps.
    if name != "xlstm":
        model.set_attn_implementation("eager")
    # Norms and biases start at 1 and 0, and gates nearly closed: random ones show that they are in their places.
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.add_(torch.randn_like(p) * (0.2 if p.ndim == 1 else 0.1))
    path = os.path.join(folder, name)
    if stored:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.bfloat16())
        copy.deepcopy(model).bfloat16().save_pretrained(path)
        os.remove(os.path.join(path, "generation_config.json"))
    else:
        model.save_pretrained(path, max_shard_size="16KB" if name == "mistral" else "5GB")
    tokens = torch.randint(3, vocabulary, (2, 8 if stored else 16))
    model.zero_grad()
    out = model(input_ids=tokens, labels=tokens, use_cache=False)
    out.loss.backward()
    pairs = [(p, p.grad) for p in model.parameters() if p.grad is not None]
    sums = dict(
        gradientNorm=sum((g.double() ** 2).sum() for _, g in pairs).sqrt().item(),
        gradientDotParams=sum((p.double() * g.double()).sum() for p, g in pairs).item(),
    )
    if not stored:
        # Gradients in a model of the same class, so that the files have the names and the layout of parameters.
        grads = type(model)(model.config).float()
        with torch.no_grad():
            for p, q in zip(model.parameters(), grads.parameters()):
                q.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
        grads.save_pretrained(os.path.join(path, "gradients"))
    logits = [float(f"{x:.8g}") for x in out.logits.detach().flatten().tolist()]
    expected = dict(tokens=tokens.tolist(), logits=logits, loss=out.loss.item(), **sums)
    with open(os.path.join(path, "expected.json"), "w") as file:
        json.dump(expected, file)
    print(name, out.loss.item(), flush=True)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in [arg for arg in sys.argv[2:] if arg != "--stored"] or families:
        write(sys.argv[1], name)
