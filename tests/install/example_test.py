"""Runs the C++ example beside transformers: its embeddings must be the same, bit for bit.

    example_test.py TRASH_PANDA MINILM

A model of MiniLM's shape with weights of chance; and MiniLM itself where ./bootstrap demo has
fetched it. Exit 77: this Python lacks torch or transformers.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
try:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).parents[2]
MINILM = ROOT / ".cache/demo/all-MiniLM-L6-v2"
SENTENCES = [
    "A panda eats bamboo in the morning.",
    "The bear is having breakfast.",
    "Raccoons aren't PANDAS; unbelievable, what!?",
]
PIECES = ("[PAD] [UNK] [CLS] [SEP] a the is in . , ; ' ! ? panda ##s eat bamboo morning bear "
          "having break ##fast rac ##coon are ##n t un ##believ ##able").split()  # fmt: skip
program, example = map(pathlib.Path, sys.argv[1:3])


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, f"{command} gave {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def make_model(folder: pathlib.Path) -> pathlib.Path:
    """A model as MiniLM but for its vocabulary; norms and biases of chance too."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(PIECES), hidden_size=384, num_hidden_layers=6,
                        num_attention_heads=12, intermediate_size=1536,
                        max_position_embeddings=64)  # fmt: skip
    model = BertModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "LayerNorm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return folder


def embed(model: pathlib.Path, sentences: list[str]) -> torch.Tensor:
    tokenizer = BertTokenizer.from_pretrained(model)
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = BertModel.from_pretrained(model)(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))


class Example(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def pack(self, model: pathlib.Path) -> pathlib.Path:
        """A pack most of whose layers stay on disk."""
        plan, pack = self.folder / "plan.toml", self.folder / "model.panda"
        run(program, "plan", model, "-o", plan, "--compute-dtype", "fp32")
        text = plan.read_text()
        self.assertEqual(text.count('tier = "ram"'), 6, text)
        plan.write_text(text.replace('tier = "ram"', 'tier = "disk"', 4))
        run(program, "repack", model, "--plan", plan, "-o", pack)
        return pack

    def check(self, model: pathlib.Path):
        pack = self.pack(model)
        output = self.folder / "embeddings.f32"
        for sentences in (SENTENCES, SENTENCES[:1]):  # With padding, and without.
            printed = run(example, pack, model / "vocab.txt", output, *sentences)
            self.assertIn("1.00  A panda eats bamboo", printed)
            self.assertIn("read 28 MB of layers from disk", printed)
            expected = embed(model, sentences)
            self.assertEqual(output.read_bytes(), expected.numpy().tobytes())

    def test_embeds_as_transformers_does(self):
        self.check(make_model(self.folder))

    @unittest.skipUnless(MINILM.is_dir(), "fetched by ./bootstrap demo")
    def test_embeds_as_minilm_does(self):
        self.check(MINILM)

    def test_the_program_of_the_documentation_is_this_one(self):
        text = (ROOT / "examples/cpp/norms.cpp").read_text()
        self.assertIn(f"```cpp\n{text}```\n", (ROOT / "docs/cpp.md").read_text())
        printed = run(example.with_name("norms"), self.pack(make_model(self.folder)))
        norms = dict(line.rsplit(": ", 1) for line in printed.splitlines())
        self.assertEqual(len(norms), 6 * 16)
        weights = BertModel.from_pretrained(self.folder).state_dict()
        for name, norm in norms.items():
            expected = weights[name].double().norm().item()
            self.assertLess(abs(float(norm) - expected), 1e-4 * expected, name)

    def test_says_what_is_wrong(self):
        vocabulary = self.folder / "vocab.txt"
        vocabulary.write_text("\n".join(PIECES) + "\n")
        for arguments, code, words in (
            ((), 2, "usage: minilm"),
            (("no.panda", vocabulary, "x", "A."), 1, "no.panda"),
            (("no.panda", self.folder / "none.txt", "x", "A."), 1, "none.txt"),
            (("no.panda", vocabulary, "x", "Ä."), 1, "ASCII only"),
        ):
            done = subprocess.run([example, *map(str, arguments)], capture_output=True, text=True,
                                  check=False)  # fmt: skip
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
