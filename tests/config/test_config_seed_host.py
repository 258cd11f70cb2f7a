"""Rules of seeds and hosts, each broken once."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.config.host_options import configured_hosts
from vibeserve.errors import SpecError

ROOT = Path(__file__).resolve().parents[2]
COMMIT = f"seed.commit={'a' * 40}"
SSH = ("host=ssh", "host.address=me@lab")


def refused(*overrides: str, target: str = "tiny_cpu") -> str:
    with pytest.raises(SpecError) as caught:
        compose_spec([f"+target={target}", *overrides], cwd=ROOT)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (("seed=artifact",), "seed.path: needed when seed.kind is artifact"),
        (("seed=path",), "seed.path: needed when seed.kind is path"),
        (("seed=git", COMMIT), "seed.url: needed when seed.kind is git"),
        (("seed=git", "seed.url=x"), "seed.commit: needed when seed.kind is git"),
        (("seed=git", "seed.url=x", "seed.commit=main"), "seed.commit: 'main' is no whole commit id (40 or 64"),
        (("seed=git", "seed.url=x", "seed.commit=abc1234"), "seed.commit: 'abc1234' is no whole commit id"),
        (("seed=git", "seed.url=x", COMMIT, "seed.engine=mine"), "seed.engine: 'mine' is no engine that a runtime"),
        (("seed=git", "seed.url=x", COMMIT, "seed.overlay=none"), "seed.overlay: there is no folder "),
        (("seed=path", "seed.path=none"), "seed.path: there is no folder "),
        (("seed.url=x",), "seed.url: a seed of kind scaffold would ignore it"),
        (("seed.search=if_refused",), "seed.search: if_refused is for seed.kind artifact, not scaffold"),
        (("seed.kind=nano",), "seed.kind: 'nano' is not valid; valid: scaffold, artifact, path, git"),
        (("host=ssh",), "host.address: a host of kind ssh needs one, such as user@machine"),
        (("host=docker",), "host.image: a host of kind docker needs one, with an interpreter that has what runtimes"),
        (("host=docker", "host.image=x", "host.options=['rm=true']"), "host.options: 'rm=true' is none of a container; "
         "valid: cpuset_cpus, gpus, "),
        (("host=slurm", "host.options=['--job-name=mine']"), "host.options: '--job-name=mine' is no option of"),
        (("host=slurm", "host.options=[gpu]"), "host.options: 'gpu' is no option of salloc that may be given"),
        ((*SSH, "host.options=['--partition=gpu']"), "host.options: a host of kind ssh would ignore them"),
        (("host=slurm", "budget=large"), "which a host of kind slurm does not show; valid: quick, standard"),
        ((*SSH, "budget=large"), "budget.level: full's soak reads the servers' processes"),
    ],
)
def test_what_breaks_a_rule_is_refused(overrides: tuple[str, ...], text: str) -> None:
    assert text in refused(*overrides)


def test_baselines_that_a_host_cannot_have_are_refused() -> None:
    told = refused(*SSH, "baseline=all", target="smollm2_cpu")
    assert "baseline.vllm: has an environment of its own, which a host of kind ssh has not; leave it out" in told
    assert "transformers_cb" not in told, "several dtypes are calibrated there"
    spec = compose_spec(["+target=tiny_cpu", *SSH], cwd=ROOT)
    assert spec.host.kind == "ssh" and set(spec.baseline) == {"scaffold"}


def test_the_packages_ssh_is_no_machine_before_it_has_an_address() -> None:
    assert [option.name for option in configured_hosts(ROOT)] == ["local"]


def test_a_seeds_folder_is_found_from_the_repositorys_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / "mine/runtime").mkdir(parents=True)
    (tmp_path / "latest").symlink_to("mine")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    spec = compose_spec(["+target=tiny_cpu", "seed=path", "seed.path=latest"])
    assert spec.seed.path == str((tmp_path / "mine").resolve()), "links are followed: `latest` moves when a run ends"
