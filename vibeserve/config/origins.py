"""Which file, line and column stated a key of the composed spec last; or the command line; or nobody, the default."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vibeserve.config.faults import COMMAND_LINE, DEFAULT, Fault, Place
from vibeserve.config.yaml_text import YamlFile, join

if TYPE_CHECKING:
    import yaml


OTHER_FILE = re.compile(r"(?P<file>[^:]+\.jsonl?):((?P<line>\d+):)? (?P<text>(?s:.*))")


NOT_SET = "not set"


class Origins:
    """Filled in the order of merging: what is stated later replaces what was stated before."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._own = DEFAULT

    def file(self, file: YamlFile, *, prefix: str = "", leave_out: tuple[str, ...] = ("defaults",)) -> None:
        """Everything that `file` states, below the dotted `prefix`; keys in `leave_out` at its top are no values."""
        import yaml

        if not isinstance(file.root, yaml.MappingNode):
            return
        self._own = file.place(file.root)
        if prefix:
            self._places[prefix] = file.place(file.root)
        for key, value in file.root.value:
            if key.value not in leave_out:
                self._state(value, file, join(prefix, key.value), file.place(key))

    def command_line(self, key: str, value: Any) -> None:
        """`key=value` on the command line; a mapping states its entries."""
        if isinstance(value, dict):
            for name, below in value.items():
                self.command_line(join(key, str(name)), below)
        else:
            key = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", key)
            self._forget(key)
            self._places[key] = COMMAND_LINE

    def _state(self, node: yaml.Node, file: YamlFile, key: str, place: Place) -> None:
        import yaml

        if isinstance(node, yaml.MappingNode):
            self._places[key] = place
            for name, value in node.value:
                self._state(value, file, join(key, name.value), file.place(name))
            return
        self._forget(key)
        self._places[key] = place
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._state(item, file, f"{key}[{index}]", file.place(item))

    def _forget(self, key: str) -> None:
        """A list or a value replaces all that was below."""
        for below in [known for known in self._places if known.startswith((f"{key}.", f"{key}["))]:
            del self._places[below]

    def place(self, problem: str) -> Place:
        """Where the fault of a line `key: what` is stated: the key, else a key that the text names, else the default.

        A whole group as key (`workload: a + b is above c`) is the last resort, since its parts say more.
        """
        key, _, text = problem.partition(": ")
        words = re.findall(r"[A-Za-z_][\w.\[\]]*", text)
        named = [name for word in words for name in (f"{key}.{word}", word.rstrip(".")) if "." in name]
        candidates = [*([key] if re.search(r"[.\[]", key) else []), *named, key]
        if text.startswith(NOT_SET):
            candidates += [key.rsplit(".", count)[0] for count in range(1, key.count(".") + 1)]
        if key.startswith("goals["):
            # what a goal leaves out is missing where it is written
            candidates.append(key.partition(".")[0])
        known = [self._places[name] for name in candidates if name in self._places]
        replaced = [COMMAND_LINE for name in candidates[:1] if self._is_on_command_line(name)]
        # only a target's own file declares goals
        nowhere = self._own if key == "goals" else DEFAULT
        return next(iter([*known, *replaced]), nowhere)

    def _is_on_command_line(self, key: str) -> bool:
        """A list or mapping above `key` came from the command line as a whole."""
        above = [known for known in self._places if key.startswith((f"{known}.", f"{known}["))]
        return any(self._places[known] == COMMAND_LINE for known in above)

    def entries(self, mapping: str) -> list[str]:
        """Names, or numbers in a list, that the files state below the key `mapping`."""
        places = (known.replace(f"{mapping}[", f"{mapping}.", 1).replace("]", "", 1) for known in self._places)
        below = [known.removeprefix(f"{mapping}.") for known in places if known.startswith(f"{mapping}.")]
        return [name for name in below if not any(name.startswith(f"{other}.") for other in below)]

    def fault(self, problem: str) -> Fault:
        """The line as a fault; one that begins with a place in another file (a trace) keeps it."""
        other = OTHER_FILE.match(problem)
        if other:
            return Fault(place=Place(file=other["file"], line=int(other["line"] or 0)), text=other["text"])
        return Fault(place=self.place(problem), text=problem)
