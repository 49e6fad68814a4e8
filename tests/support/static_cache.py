"""A model of transformers with its StaticCache, packed, and run token by token beside the whole sequence;
prints what came of it as JSON. Needs transformers beside PyTorch.
``python -m tests.support.static_cache FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

import edgepack

TOKENS, LENGTH = (5, 9, 3, 7), 16


def main() -> None:
    """One bundle, and as many runs as tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    model = LlamaForCausalLM(config).eval()
    model.generation_config = GenerationConfig(
        use_cache=True, cache_implementation="static", cache_config={"batch_size": 1, "max_cache_len": LENGTH}
    )
    module = TorchExportableModuleWithStaticCache(model)
    example = {"input_ids": torch.tensor([[TOKENS[0]]]), "cache_position": torch.tensor([0])}
    bundle = edgepack.pack(module, "host", Path(sys.argv[1]) / "bundle", example_inputs=example)
    found = {"ok": bundle.verify().ok, "worst": 0.0}
    with edgepack.load(bundle) as session, torch.no_grad():
        state = {one.name: np.zeros(one.shape, one.dtype) for one in session.inputs}
        found["state"] = [one.name for one in session.inputs][:-2]
        for position, token in enumerate(TOKENS):
            state |= {"input_ids": np.array([[token]]), "cache_position": np.array([position])}
            results = session.run(state)
            state |= {name.removesuffix("_next"): one for name, one in results.items() if "_next" in name}
            whole = model(torch.tensor([TOKENS[: position + 1]]), use_cache=False).logits[:, -1].numpy()
            found["worst"] = max(found["worst"], float(np.abs(results["output"][:, -1] - whole).max()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
