"""An empty repository to write targets into, and small models to write them for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from init_samples import BERT, MODULES, Command, ModelFolder, pooling_flags


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; the working directory. Standard input is no terminal."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", open("/dev/null", encoding="utf-8"))  # noqa: SIM115, PTH123 (closed with the test)
    return folder


@pytest.fixture
def vibeserve(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def model_folder(tmp_path: Path) -> ModelFolder:
    """Makes a folder with config.json and other JSON documents by relative name."""

    def make(config: dict[str, Any], **documents: Any) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        for name, document in {"config": config, **documents}.items():
            path = folder / f"{name.replace('__', '/')}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(document), encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence embedding model of two random layers, with tokenizer and weights."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from vibeserve.contract import Pool
    from vibeserve.workloads.text_pools import paragraphs

    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(
        paragraphs(Pool.visible), trainers.WordPieceTrainer(vocab_size=600, special_tokens=special)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {key: value for key, value in BERT.items() if key not in ("model_type", "architectures")}
    # wider than the usual 0.02: what random layers compute then depends on their input
    config = BertConfig(**sizes, vocab_size=tokenizer.get_vocab_size(), initializer_range=0.3)
    BertModel(config).save_pretrained(folder)
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling_flags("mean_tokens")))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48}))
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")
    return folder
