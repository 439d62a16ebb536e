"""TRL's SFTTrainer and DPOTrainer, which train a tiny random model on exported attempts."""

import json
import os
import subprocess
import sys
from pathlib import Path

REQUIRES = ("trl", "torch")
TIMEOUT_S = 900

TRAIN = '''
import json
import sys
from importlib.metadata import version

from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

TEMPLATE = """\\
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor -%}
<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}

{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer_of(texts):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<pad>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<|im_end|>", model_max_length=8192
    )
    fast.chat_template = TEMPLATE
    return fast


def model_of(tokenizer):
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )
    return AutoModelForCausalLM.from_config(config)


def learn(kind, path):
    rows = load_dataset("json", data_files=path, split="train")
    lines = [json.loads(line) for line in open(path)]
    assert len(rows) == len(lines)
    tokenizer = tokenizer_of(open(path))
    common = dict(
        output_dir=f"out-{kind}", max_steps=3, per_device_train_batch_size=2, report_to="none",
        use_cpu=True, bf16=False, learning_rate=1e-2, logging_steps=1, save_strategy="no",
        max_length=None,
    )
    if kind == "sft":
        args = SFTConfig(**common, assistant_only_loss=True)
        given = {"train_dataset": rows, "processing_class": tokenizer}
        trainer = SFTTrainer(model_of(tokenizer), args, **given)
        taught = [("input_ids", "messages")]
        for line, labels in zip(lines, trainer.train_dataset["labels"]):
            text = tokenizer.decode([token for token in labels if token != -100])
            assert line["messages"][-1]["content"] in text
            assert line["messages"][1]["content"] not in text
    else:
        args = DPOConfig(**common)
        given = {"train_dataset": rows, "processing_class": tokenizer}
        # A model that was never saved has no name to make its reference of.
        trainer = DPOTrainer(model_of(tokenizer), model_of(tokenizer), args=args, **given)
        taught = [("prompt_ids", "prompt"), ("chosen_ids", "chosen"), ("rejected_ids", "rejected")]
    for line, row in zip(lines, trainer.train_dataset):
        for ids, key in taught:
            text = tokenizer.decode(row[ids])
            for message in line[key]:
                assert message["content"] in text, (message["content"], text)
                for call in message.get("tool_calls", []):
                    # As the template writes it: a mapping, with no key of other calls.
                    known = json.loads(text.split("<call>")[1].split("</call>")[0])
                    assert known["arguments"].keys() == call["function"]["arguments"].keys(), known
        if "tools" in line:
            told = tokenizer.decode(row[taught[0][0]])
            assert json.loads(line["tools"])[0]["function"]["name"] in told.split("<|im_end|>")[0]
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3 and all(0 < loss < 100 for loss in losses), losses
    return f"{kind} {path}: {len(lines)} rows, loss {losses[0]:.3f} to {losses[-1]:.3f}"


said = [learn(*word.split("=")) for word in sys.argv[1:]]
names = ("trl", "transformers", "torch", "datasets")
print("\\n" + json.dumps([", ".join(f"{name} {version(name)}" for name in names), *said]))
'''

TOOLS = {"py": {"mode": "builtin", "name": "python_executor"}}


def check(python: Path, folder: Path) -> str:
    """Practise with and without a tool, export both runs in both shapes, and train on each."""
    _run(folder, "demo", "--keep", "kept")
    kept = folder / "kept"
    sets = (f"evaluation.agent.toolkits={json.dumps(TOOLS)}", "exp_id=tools")
    words = [word for one in sets for word in ("--set", one)]
    _run(kept, "practice", "--config", "practice.yaml", *words)
    files = []
    for run, *more in (("demo",), ("demo", "--without-library"), ("tools",)):
        for shape in ("sft", "dpo"):
            file = f"{run}{''.join(more)}-{shape}.jsonl"
            _run(kept, "export-data", run, "--format", shape, "-o", file, *more)
            files.append(f"{shape}={file}")
    (kept / "train.py").write_text(TRAIN)
    trained = subprocess.run(
        [python, "train.py", *files],
        cwd=kept,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr[-3000:]
    return "; ".join(json.loads(trained.stdout.splitlines()[-1]))


def _run(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grpo_practice", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
