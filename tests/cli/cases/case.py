"""One case of the shared folder: a checkpoint, and what a careful reader makes of it."""

import dataclasses
import json
import pathlib

from pack_values import Tensor, read_safetensors


@dataclasses.dataclass(frozen=True)
class Case:
    folder: pathlib.Path
    entry: pathlib.Path  # What is named on the command line.
    listed: dict  # Its line in manifest.json.
    expected: dict

    @property
    def id(self) -> str:
        return self.listed["id"]

    @property
    def group(self) -> str:
        return self.listed["group"]

    @property
    def is_error(self) -> bool:
        return self.listed["outcome"] == "error"

    @property
    def error_class(self) -> str:
        return self.listed["error_class"] or ""

    @property
    def accepted(self) -> list[str]:
        """Other outcomes that are as good; words, or `error:CLASS`."""
        accept = self.expected.get("accept") or []
        return [accept] if isinstance(accept, str) else accept

    @property
    def may_be_refused(self) -> bool:
        """Its format need not be supported, as long as it is named."""
        return "refuse-by-name" in self.accepted

    @property
    def message_names(self) -> list[str]:
        return self.expected.get("message_names") or []

    @property
    def has_values(self) -> bool:
        """Whether it says what the parameters are; else their bytes are those of the checkpoint."""
        return self.expected.get("model_tensors") is not None or "raw_tensors" in self.expected

    @property
    def values(self) -> dict[str, Tensor]:
        tensors = read_safetensors(self.folder / "expected.safetensors")
        # These say how values round to other dtypes, which is not the reader's business.
        return {name: tensor for name, tensor in tensors.items() if not name.startswith("__as_")}

    def list_of(self, key: str) -> list[str]:
        """A list of names; a single one may stand without brackets."""
        names = self.expected.get(key) or []
        return [names] if isinstance(names, str) else names


def read_cases(folder: pathlib.Path) -> list[Case]:
    cases = []
    for listed in json.loads((folder / "manifest.json").read_text(encoding="utf-8")):
        case_folder = folder / listed["id"]
        expected = json.loads((case_folder / "expected.json").read_text(encoding="utf-8"))
        cases.append(Case(case_folder, folder / listed["entry"], listed, expected))
    return cases
