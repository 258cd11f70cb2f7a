"""The job files of `docs/ci/`: they are valid, and their own shell steps end with the codes that the documents name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ci_steps import FOLDER, ROOT, Job, github_jobs, gitlab_jobs

from vibeserve.artifact import Packaged

SCHEMAS = {
    "github.yml": ["--builtin-schema", "vendor.github-workflows"],
    "gitlab.yml": ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}
JOBS = [*(("github", job) for job in github_jobs().values()), *(("gitlab", job) for job in gitlab_jobs().values())]
IDS = [f"{ci}-{job.name}" for ci, job in JOBS]


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    """By the schemas that check-jsonschema brings along: those of the CIs, as editors use them."""
    argv = [sys.executable, "-m", "check_jsonschema", *SCHEMAS[path.name], str(path)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(packaged: Packaged, tmp_path: Path) -> Path:
    """A user's repository with the artifact where the job files expect it, and nobody who signs."""
    folder = tmp_path / "repository"
    shutil.copytree(packaged.path, folder / "artifacts/smollm2_cpu" / packaged.path.name)
    (folder / "artifacts/smollm2_cpu/latest").symlink_to(packaged.path.name)
    (folder / ".vibeserve-signers").touch()
    return folder


def change_a_byte(repository: Path) -> None:
    path = repository / "artifacts/smollm2_cpu/latest/golden/replies.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_the_schema_of_the_ci_accepts_the_file(name: str) -> None:
    done = validated(FOLDER / name)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "wrong"), [("github.yml", ("runs-on:", "run-on:")), ("gitlab.yml", ("script:", "scripts:"))]
)
def test_and_refuses_one_with_a_slip(tmp_path: Path, name: str, wrong: tuple[str, str]) -> None:
    (tmp_path / name).write_text((FOLDER / name).read_text().replace(*wrong))
    assert validated(tmp_path / name).returncode == 1


@pytest.mark.parametrize(("ci", "job"), JOBS, ids=IDS)
def test_nothing_but_the_installation_is_left_out_of_these_tests(ci: str, job: Job) -> None:
    assert job.installs == ('python -m pip install "$VIBESERVE"',)
    assert re.match(r'vibeserve verify "\$ARTIFACT" --level ' + job.name, job.script)
    assert "\n" not in job.script


@pytest.mark.parametrize(("ci", "job"), JOBS, ids=IDS)
def test_a_changed_byte_fails_every_job(repository: Path, ci: str, job: Job) -> None:
    change_a_byte(repository)
    done = job.run(repository)
    assert done.returncode == 3, done.stderr
    assert "integrity/digest_mismatch: golden/replies.jsonl does not hold the recorded golden data" in done.stdout
    assert ElementTree.parse(repository / "verify.xml").getroot().get("failures") == "1"
    assert "(exit 3)" in (repository / "verify.md").read_text()


@pytest.mark.parametrize(
    ("ci", "job"), [row for row in JOBS if row[1].name == "bytes"], ids=lambda value: str(value)[:6]
)
def test_a_good_artifact_passes_the_bytes(repository: Path, ci: str, job: Job) -> None:
    done = job.run(repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("certified: sample 0123456789abcdef level quick; bytes ok; signature: none; ")
    assert job.run(repository, ARTIFACT="artifacts/none").returncode == 2


@pytest.mark.parametrize(
    ("ci", "job"), [row for row in JOBS if row[1].name == "bytes"], ids=lambda value: str(value)[:6]
)
def test_a_signature_by_nobody_on_the_list_fails_the_bytes(repository: Path, ci: str, job: Job) -> None:
    key = repository / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    sign = replace(job, script='vibeserve sign "$ARTIFACT" --key key')
    assert sign.run(repository).returncode == 0
    assert job.run(repository).returncode == 3
    (repository / ".vibeserve-signers").write_text(f"me@example.org {(repository / 'key.pub').read_text()}")
    done = job.run(repository)
    assert (done.returncode, "signature: valid by me@example.org" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("ci", "job"), [row for row in JOBS if row[1].name == "performance"], ids=lambda value: str(value)[:6]
)
def test_performance_on_another_machine_is_not_judged(repository: Path, ci: str, job: Job) -> None:
    """The sample was certified on a machine that does not exist."""
    done = job.run(repository)
    assert done.returncode == 5, done.stdout
    assert "cannot be judged on this machine" in done.stderr
    assert ElementTree.parse(repository / "verify.xml").getroot().get("errors") == "1"


def cron(repository: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = 'sh "$CRON" artifacts/smollm2_cpu/latest'
    job = Job(name="cron", environment={"CRON": str(FOLDER / "verify.sh")}, installs=(), script=command)
    return job.run(repository, **more)


def test_the_nightly_script_is_quiet_while_the_claim_holds_and_keeps_the_code(repository: Path) -> None:
    done = cron(repository, LEVEL="bytes")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    change_a_byte(repository)
    done = cron(repository, LEVEL="bytes")
    assert (done.returncode, "digest_mismatch" in done.stdout) == (3, True)
    done = cron(repository, ARTIFACT="x", LEVEL="performance")
    assert done.returncode == 3
    codes = [line.split()[2] for line in (repository / "verify.log").read_text().splitlines()]
    assert codes == ["0", "3", "3"]


def test_the_nightly_script_does_not_run_twice_at_once(repository: Path) -> None:
    import fcntl

    with (repository / "verify.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cron(repository, LEVEL="bytes").returncode == 75


def test_the_snippet_for_other_cis_lets_only_5_pass(repository: Path) -> None:
    text = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"((?:^    .*\n)+)", text.partition("## Treating the codes")[2], re.MULTILINE)
    job = replace(github_jobs()["performance"], script="\n".join(line[4:] for line in block.splitlines()))
    done = job.run(repository)
    assert (done.returncode, done.stdout) == (0, "not judged: wrong machine?\n")
    change_a_byte(repository)
    assert job.run(repository).returncode == 3


def test_the_scripts_mode_and_syntax() -> None:
    assert os.access(FOLDER / "verify.sh", os.X_OK)
    subprocess.run(["sh", "-n", str(FOLDER / "verify.sh")], check=True)
