"""Who vouches for an artifact: a detached OpenSSH signature of its `SHA256SUMS`, made and checked by `ssh-keygen -Y`.

`SHA256SUMS.sig` is the one file of an artifact that its list does not cover, because it covers the list.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vibeserve.artifact.sums import SIGNATURE_NAME, SUMS_NAME
from vibeserve.core.documents import write_text_atomic
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError, SpecError

NAMESPACE = "vibeserve"
"""so that a signature made for another purpose does not count"""
EXAMPLE_LINE = f'you@example.org namespaces="{NAMESPACE}" ssh-ed25519 AAAA...'
_OF_THE_LIST = re.compile(
    r".*?:(\d+): (key has expired.*|key is not yet valid.*|key is not permitted.*|missing key|bad .*)"
)
"""what ssh-keygen says of a line of the list"""


class SignatureState(Enum):
    NONE = "none"
    UNCHECKED = "present, not checked"
    VALID = "valid"
    INVALID = "invalid"


@dataclass(frozen=True, kw_only=True)
class Signature:
    state: SignatureState
    identity: str = ""
    """of the verifier's own list: who signed; only where it is valid"""
    detail: str = ""
    """why it is invalid"""

    @property
    def text(self) -> str:
        """`none`, `present, not checked`, `valid by IDENTITY` or `invalid`."""
        return f"valid by {self.identity}" if self.state is SignatureState.VALID else self.state.value


def sign(artifact: Path, *, key: Path) -> Path:
    """Write the artifact's `SHA256SUMS.sig`, an older one replaced; `key` is a private key, or the public one of a key
    that the agent holds. The caller has checked the bytes. InfraError where ssh-keygen is missing or refuses."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copyfile(artifact / SUMS_NAME, Path(folder) / SUMS_NAME))
        # a passphrase is asked for on the terminal, which is left to ssh-keygen
        done = _run(["-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(copy)], stdin=None)
        if done.returncode != 0:
            raise InfraError(f"ssh-keygen did not sign with {key}: {_told(done)}\nnext: ssh-keygen -t ed25519 -f KEY")
        write_text_atomic(artifact / SIGNATURE_NAME, (Path(folder) / SIGNATURE_NAME).read_text(encoding="ascii"))
    return artifact / SIGNATURE_NAME


def check_signature(artifact: Path, *, allowed_signers: Path | None) -> Signature:
    """The state of the artifact's signature under `allowed_signers` (ssh-keygen(1), ALLOWED SIGNERS)."""
    path = artifact / SIGNATURE_NAME
    if not path.exists():
        return Signature(state=SignatureState.NONE)
    if allowed_signers is None:
        return Signature(state=SignatureState.UNCHECKED)
    common = ["-f", str(allowed_signers), "-s", str(path)]
    content = (artifact / SUMS_NAME).read_bytes()
    found = _run(["-Y", "find-principals", *common], stdin=b"")
    tried = [found]
    for identity in found.stdout.decode(errors="replace").split() if found.returncode == 0 else []:
        done = _run(["-Y", "verify", *common, "-I", identity, "-n", NAMESPACE], stdin=content)
        if done.returncode == 0:
            return Signature(state=SignatureState.VALID, identity=identity)
        tried.append(done)
    detail = _why(tried, path, content=content, allowed_signers=allowed_signers)
    return Signature(state=SignatureState.INVALID, detail=detail)


def _why(
    tried: Sequence[subprocess.CompletedProcess[bytes]], path: Path, *, content: bytes, allowed_signers: Path
) -> str:
    """What is wrong, with whom, and what to do about it."""
    alone = _run(["-Y", "check-novalidate", "-s", str(path), "-n", NAMESPACE], stdin=content)
    if alone.returncode != 0:
        told = _told(alone)
        if "incorrect signature" in told:
            return f"it is not one of this {SUMS_NAME}, which was written after it was signed; next: fetch both again"
        return f"it is not one that `vibeserve sign` makes ({told}); next: fetch it again, or ask for a new one"
    lines = [line for done in tried for line in done.stderr.decode(errors="replace").splitlines()]
    for line in lines:
        match = _OF_THE_LIST.match(line)
        if match is not None:
            return _fault_of_line(int(match[1]), match[2], allowed_signers=allowed_signers)
    key = alone.stdout.decode(errors="replace").strip().rpartition("signature with ")[2]
    return (
        f"it was made by {key}, and no line of {allowed_signers.name} holds that key; next: ask the origin which key "
        "it signs with, and add it only if that is the one"
    )


def _fault_of_line(number: int, fault: str, *, allowed_signers: Path) -> str:
    lines = allowed_signers.read_text(encoding="utf-8", errors="replace").splitlines()
    who = lines[number - 1].split()[0] if number <= len(lines) and lines[number - 1].split() else "?"
    place = f"line {number} of {allowed_signers.name} ({who})"
    if fault.startswith("key "):
        return (
            f"{place}: {fault}; next: a signature by a key that is valid now, or correct the line. A key's dates are "
            "held against the time of the check"
        )
    return f"{place} cannot be read: {fault}; next: write it as {EXAMPLE_LINE}"


def signature_refusals(signature: Signature, *, is_required: bool) -> list[Refusal]:
    """An invalid signature refuses always, an absent or unchecked one where one is required."""
    if signature.state is SignatureState.INVALID:
        text = f"{SIGNATURE_NAME} is invalid: {signature.detail}"
        return [Refusal(gate="signature", reason_class="invalid_signature", text=text, file=SIGNATURE_NAME)]
    if is_required and signature.state is not SignatureState.VALID:
        text = f"a signature is required, and it is: {signature.text}"
        return [Refusal(gate="signature", reason_class="unsigned", text=text, file=SIGNATURE_NAME)]
    return []


def refuse_absent_list(allowed_signers: Path | None, *, is_required: bool) -> None:
    """SpecError where a signature is required and nobody says whose, or the list is not there."""
    if is_required and allowed_signers is None:
        raise SpecError("verify: --require-signature needs to know whose", hint="add --allowed-signers FILE")
    if allowed_signers is not None and not allowed_signers.is_file():
        raise SpecError(
            f"verify: --allowed-signers: no file {allowed_signers}",
            hint=f"one line a signer: {EXAMPLE_LINE}",
        )


def _run(arguments: list[str], *, stdin: bytes | None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=stdin, capture_output=True, check=False)
    except FileNotFoundError:
        raise InfraError("ssh-keygen was not found\nnext: install OpenSSH's client (openssh-client)") from None


def _told(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"status {done.returncode}"
