"""The tiny model of these tests is one that the libraries load as they load any other."""

from pathlib import Path

import pytest

from tests.train.tiny import SPECIAL, tiny_model_folder

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def test_a_tiny_folder_is_loaded_offline_and_answers(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    assert (folder / "model.safetensors").is_file()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "1 + 2?\n"}]
    prompt = tokenizer.apply_chat_template(
        said, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    text = "<system>Be short.<user>1 + 2?\n<assistant>"
    assert tokenizer.decode(prompt["input_ids"][0]) == text
    assert prompt["input_ids"].shape == (1, len("Be short.1 + 2?\n") + 3)
    answer = model.generate(**prompt, max_new_tokens=4, do_sample=True)
    assert prompt["input_ids"].shape[1] < answer.shape[1] <= prompt["input_ids"].shape[1] + 4
    assert (tokenizer.pad_token, tokenizer.eos_token) == SPECIAL[:2]


def test_a_text_survives_the_tiny_tokenizer(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "a  b, c .\n\n\t{1: 'x'}"
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text


def test_the_seed_makes_the_weights(tmp_path: Path) -> None:
    one, again, other = (
        (tiny_model_folder(tmp_path / name, seed=seed) / "model.safetensors").read_bytes()
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    )
    assert one == again != other
