"""`vibeserve sign PATH --key KEY`: put a signature beside an artifact's list of digests."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.arguments import VerbParser
from vibeserve.artifact.consistency import contradictions
from vibeserve.artifact.integrity import verify_bytes
from vibeserve.artifact.manifest import read_manifest
from vibeserve.artifact.open import resolve_artifact
from vibeserve.artifact.pages import page_refusals
from vibeserve.artifact.signature import sign
from vibeserve.artifact.sums import SUMS_NAME
from vibeserve.core.documents import digest_file
from vibeserve.errors import RefusedError, SpecError


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve sign`. RefusedError for an artifact that is not what was packaged."""
    parser = VerbParser("sign", description="Sign an artifact's SHA256SUMS with an OpenSSH key (SHA256SUMS.sig).")
    parser.add_argument("path", metavar="PATH", help="artifact folder, such as artifacts/<target>/latest")
    parser.add_argument("--key", required=True, metavar="FILE", help="private key, or its .pub where an agent holds it")
    arguments = parser.parse_args(argv)
    key = Path(arguments.key)
    if not key.is_file():
        raise SpecError(f"sign: --key: no file {key}", hint="ssh-keygen -t ed25519 -f KEY makes one")
    artifact = resolve_artifact(Path(arguments.path))
    refusals = verify_bytes(artifact)
    if not refusals:
        manifest = read_manifest(artifact)
        refusals = [*contradictions(artifact, manifest), *page_refusals(artifact, manifest)]
    if refusals:
        lines = "\n".join(f"  {refusal.text}" for refusal in refusals[:10])
        raise RefusedError(f"{artifact} is not signed: it is not what was packaged\n{lines}", reasons=refusals)
    written = sign(artifact, key=key)
    digest = digest_file(artifact / SUMS_NAME)
    if arguments.is_json:
        document = {"schema_version": 1, "signature": str(written), "sha256sums": digest}
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        sys.stdout.write(f"{written}\n{SUMS_NAME} is sha256 {digest}\n")
    return 0
