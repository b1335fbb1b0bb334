"""What tests with Hugging Face's transformers share: the interpreter that has it, and small models of each family.

Needs PyPI's transformers on Debian's torch: in HEDDLE_TRANSFORMERS_PYTHON, or in a virtual environment in the build
folder, which is made when PyPI can be reached.
"""
import os
import sys

import environments  # pylint: disable=import-error  # harness knows its folder.

VERSION = "transformers==4.44.*"


def require(build):
    """Goes on in an interpreter that has transformers, or ends the test with 77 (skipped)."""
    if os.environ.get("HEDDLE_TEST_INNER") == "transformers":
        return
    python, ready = environments.interpreter("HEDDLE_TRANSFORMERS_PYTHON", os.path.join(build, "transformers-venv"),
                                             "transformers, safetensors, torch", [VERSION])
    if not ready:
        print(f"SKIPPED: no Python with transformers ({python}), and PyPI could not provide it", file=sys.stderr)
        sys.exit(77)
    os.environ["HEDDLE_TEST_INNER"] = "transformers"
    os.execv(python, [python] + sys.argv)


def library():
    """transformers, silent and off the network."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
    import transformers  # pylint: disable=import-outside-toplevel,import-error
    transformers.utils.logging.disable_progress_bar()
    return transformers


def tiny_models(transformers):
    """A name and a model of each family: small, with grouped queries, with biases and norms that are not the initial
    zeros and ones, which would hide a mistake."""
    llama = dict(vocab_size=67, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=64)
    yield "llama", _stirred(transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama)))
    tied = transformers.LlamaConfig(**llama, tie_word_embeddings=True)
    yield "llama-tied", _stirred(transformers.LlamaForCausalLM(tied))
    mistral = transformers.MistralConfig(**llama, sliding_window=None)
    yield "mistral", _stirred(transformers.MistralForCausalLM(mistral))
    yield "qwen2", _stirred(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**llama)))
    gpt2 = transformers.GPT2Config(vocab_size=67, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    yield "gpt2", _stirred(transformers.GPT2LMHeadModel(gpt2))


def _stirred(model):
    import torch  # pylint: disable=import-outside-toplevel,import-error
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def logits(transformers, folder, tokens):
    """What the model in `folder` says about [batch, length] tokens, in fp32."""
    import torch  # pylint: disable=import-outside-toplevel,import-error
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    with torch.no_grad():
        return model(torch.as_tensor(tokens)).logits
