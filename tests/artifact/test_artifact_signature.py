"""Signatures by `ssh-keygen -Y`: who vouches, and what the verdict says of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from vibeserve.artifact import Packaged, verify_bytes
from vibeserve.artifact.signature import SignatureState, check_signature
from vibeserve.artifact.sums import render_sums
from vibeserve.cli.main import main
from vibeserve.errors import InfraError


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)
    return path


def allow(path: Path, **keys: Path) -> Path:
    lines = [
        f'{name}@example.org namespaces="vibeserve" {key.with_suffix(".pub").read_text()}' for name, key in keys.items()
    ]
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys") / "key")


@pytest.fixture
def signed(packaged: Packaged, key: Path, capsys: pytest.CaptureFixture[str]) -> Packaged:
    assert main(["sign", str(packaged.path.parent / "latest"), "--key", str(key)]) == 0
    assert capsys.readouterr().out == (
        f"{packaged.path.resolve()}/SHA256SUMS.sig\nSHA256SUMS is sha256 {packaged.sums_digest}\n"
    )
    return packaged


def verified(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    """(exit code, signature as the document has it, verdict)"""
    code = main(["verify", str(path), "--level", "bytes", "--json", *options])
    answer = json.loads(capsys.readouterr().out)
    assert f"; signature: {answer['signature']}; " in answer["verdict"]
    return code, answer["signature"], answer["verdict"]


def test_a_valid_one_names_who_signed(
    signed: Packaged, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_key(tmp_path / "other")
    signers = allow(tmp_path / "signers", other=other, release=key)
    options = ("--allowed-signers", str(signers), "--require-signature")
    assert verified(signed.path, capsys, *options)[:2] == (0, "valid by release@example.org")


def test_it_changes_no_other_byte_and_is_checked_without_the_framework(
    signed: Packaged, key: Path, tmp_path: Path
) -> None:
    assert verify_bytes(signed.path, expect=signed.sums_digest) == []
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=signed.path, check=True)
    signers = allow(tmp_path / "signers", release=key)
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "release@example.org", "-n", "vibeserve"]
    sums = (signed.path / "SHA256SUMS").read_bytes()
    subprocess.run([*argv, "-s", str(signed.path / "SHA256SUMS.sig")], input=sums, check=True, capture_output=True)


def test_an_unsigned_artifact_says_so_and_passes_unless_one_is_required(
    packaged: Packaged, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signers = ("--allowed-signers", str(allow(tmp_path / "signers", release=key)))
    assert verified(packaged.path, capsys)[:2] == (0, "none")
    assert verified(packaged.path, capsys, *signers)[:2] == (0, "none")
    code, state, verdict = verified(packaged.path, capsys, *signers, "--require-signature")
    assert (code, state) == (3, "none")
    assert verdict.startswith("refused: signature/unsigned: a signature is required, and it is: none; ")


def test_one_that_nobody_checks_is_not_called_valid(signed: Packaged, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(signed.path, capsys)[:2] == (0, "present, not checked")


def test_a_key_that_is_not_on_the_list_does_not_count(
    signed: Packaged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signers = allow(tmp_path / "signers", other=make_key(tmp_path / "other"))
    code, state, verdict = verified(signed.path, capsys, "--allowed-signers", str(signers))
    assert (code, state) == (3, "invalid")
    assert "signature/invalid_signature: SHA256SUMS.sig is invalid: it was made by ED25519 key SHA256:" in verdict
    assert "and no line of signers holds that key; next: ask the origin which key it signs with" in verdict
    assert verdict.endswith("nothing was started")


def test_a_rewritten_list_is_no_longer_the_signed_one(
    signed: Packaged, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (signed.path / "VERDICT.md").write_text("12 times as fast\n")
    (signed.path / "SHA256SUMS").write_text(render_sums(signed.path))
    assert verify_bytes(signed.path) == []
    signers = allow(tmp_path / "signers", release=key)
    code, state, verdict = verified(signed.path, capsys, "--allowed-signers", str(signers))
    assert (code, state) == (3, "invalid")
    assert "it is not one of this SHA256SUMS, which was written after it was signed; next: fetch both again" in verdict


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('me@x valid-before="20200101" {key}', "line 2 of signers (me@x): key has expired: verify time "),
        ('me@x valid-after="20990101" {key}', "line 2 of signers (me@x): key is not yet valid: verify time "),
        (
            'me@x namespaces="git" {key}',
            "line 2 of signers (me@x): key is not permitted for use in signature namespace",
        ),
        ("me@x", "line 2 of signers (me@x) cannot be read: missing key; next: write it as you@example.org namespaces="),
        (
            'me@x wrong="1" {key}',
            "line 2 of signers (me@x) cannot be read: bad options: unknown key option; next: write",
        ),
    ],
)
def test_a_signer_who_does_not_count_is_named_with_the_next_step(
    signed: Packaged, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, fault: str
) -> None:
    signers = tmp_path / "signers"
    signers.write_text("# of this test\n" + line.format(key=key.with_suffix(".pub").read_text()) + "\n")
    code, state, verdict = verified(signed.path, capsys, "--allowed-signers", str(signers))
    assert (code, state) == (3, "invalid")
    assert f"SHA256SUMS.sig is invalid: {fault}" in verdict and "; next: " in verdict


def test_what_is_no_signature_says_so(signed: Packaged, key: Path, tmp_path: Path) -> None:
    (signed.path / "SHA256SUMS.sig").write_text("nonsense\n")
    found = check_signature(signed.path, allowed_signers=allow(tmp_path / "signers", release=key))
    assert found.detail.startswith("it is not one that `vibeserve sign` makes (")


def test_a_signature_for_another_purpose_does_not_count(packaged: Packaged, key: Path, tmp_path: Path) -> None:
    sums = packaged.path / "SHA256SUMS"
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "file", str(sums)], check=True, capture_output=True
    )
    signers = tmp_path / "signers"
    signers.write_text(f"release@example.org {key.with_suffix('.pub').read_text()}")
    assert check_signature(packaged.path, allowed_signers=signers).state is SignatureState.INVALID


def test_signing_again_replaces_it(signed: Packaged, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make_key(tmp_path / "other")
    assert main(["sign", str(signed.path), "--key", str(other)]) == 0
    assert json.loads(_json_of(["sign", str(signed.path), "--key", str(other), "--json"], capsys))["sha256sums"]
    signers = allow(tmp_path / "signers", other=other)
    assert verified(signed.path, capsys, "--allowed-signers", str(signers))[1] == "valid by other@example.org"


def _json_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(argv) == 0
    return capsys.readouterr().out


def test_a_changed_artifact_is_not_signed(packaged: Packaged, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (packaged.path / "runtime/runtime/model.py").write_text("HIDDEN = 65\n")
    assert main(["sign", str(packaged.path), "--key", str(key)]) == 3
    assert (
        "is not signed: it is not what was packaged\n  runtime/runtime/model.py was changed" in capsys.readouterr().err
    )
    assert not (packaged.path / "SHA256SUMS.sig").exists()


def test_a_link_is_no_signature(signed: Packaged) -> None:
    path = signed.path / "SHA256SUMS.sig"
    path.rename(signed.path.parent / "elsewhere.sig")
    path.symlink_to(signed.path.parent / "elsewhere.sig")
    assert [refusal.text for refusal in verify_bytes(signed.path)] == [
        "SHA256SUMS.sig is a symbolic link, not a plain file"
    ]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["sign", "{path}", "--key", "absent"], "sign: --key: no file absent\nnext: ssh-keygen -t ed25519 -f KEY"),
        (["verify", "{path}", "--require-signature"], "verify: --require-signature needs to know whose\nnext: add "),
        (
            ["verify", "{path}", "--allowed-signers", "absent"],
            "verify: --allowed-signers: no file absent\nnext: one line",
        ),
    ],
)
def test_what_is_missing_is_named(
    packaged: Packaged, capsys: pytest.CaptureFixture[str], argv: list[str], text: str
) -> None:
    assert main([word.replace("{path}", str(packaged.path)) for word in argv]) == 2
    assert text in capsys.readouterr().err


def test_a_key_that_is_none_or_a_machine_without_openssh_is_infrastructure(
    packaged: Packaged, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad").write_text("no key\n")
    assert main(["sign", str(packaged.path), "--key", str(tmp_path / "bad")]) == 5
    assert f"ssh-keygen did not sign with {tmp_path / 'bad'}: " in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    (packaged.path / "SHA256SUMS.sig").write_text("x")
    with pytest.raises(InfraError, match="ssh-keygen was not found\nnext: install OpenSSH's client"):
        check_signature(packaged.path, allowed_signers=key)
