"""How a packaged runtime is run for good: a systemd unit and a Kubernetes manifest, made of its service file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vibeserve.core.documents import write_text_atomic
from vibeserve.core.manifest import Manifest
from vibeserve.service.launch import fill

DEPLOY_DIR = "deploy"
UNIT_NAME, KUBERNETES_NAME = "runtime.service", "kubernetes.yaml"
PORT = 8000
USER_ID = 65532
"""in the image; a number, so that Kubernetes can see that it is not root"""
DRAIN_S = 60
"""from SIGTERM, with which a runtime stops taking requests, to its end"""
SPARE = 1.25
"""memory limit over the certified peak: fragmentation, longer texts than were measured"""
UNIT_ROOT = "/opt/vibeserve"
HARDENING = (
    "DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes",
    "PrivateDevices={private_devices}", "ProtectKernelTunables=yes", "ProtectKernelModules=yes",
    "ProtectControlGroups=yes", "RestrictSUIDSGID=yes", "RestrictNamespaces=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "LockPersonality=yes", "CapabilityBoundingSet=",
)  # fmt: skip


def add_deployment(runtime: Path, *, manifest: Manifest, threads: int) -> None:
    """Write `deploy/runtime.service` and `deploy/kubernetes.yaml`."""
    import yaml

    service = yaml.safe_load((runtime / "service.yaml").read_text(encoding="utf-8"))
    unit = systemd_unit(service, manifest=manifest, threads=threads)
    write_text_atomic(runtime / DEPLOY_DIR / UNIT_NAME, unit)
    documents = kubernetes_documents(service, manifest=manifest, threads=threads)
    text = yaml.safe_dump_all(documents, sort_keys=False, width=120)
    claim = f"{name_of(manifest)}-model"
    head = f"# docker build -t {image_of(manifest)} runtime; the model goes into the volume claim {claim}.\n"
    write_text_atomic(runtime / DEPLOY_DIR / KUBERNETES_NAME, head + text)


def systemd_unit(service: Mapping[str, Any], *, manifest: Manifest, threads: int, root: str = UNIT_ROOT) -> str:
    """A unit for the runtime's files in `<root>/<target>/runtime`, its interpreter in `<root>/<target>/venv`, and the
    model in `<root>/<target>/model`."""
    home = f"{root}/{manifest.target}"
    words = {
        "python": f"{home}/venv/bin/python", "model_dir": f"{home}/model", "host": "127.0.0.1", "port": str(PORT),
        "threads": str(threads),
    }  # fmt: skip
    environment = {**(service.get("env") or {}), "OMP_NUM_THREADS": threads, "PYTHONDONTWRITEBYTECODE": "1"}
    private_devices = "no" if manifest.hardware.get("gpus") else "yes"
    lines = [
        f"# Made for plan {manifest.plan_id}. The runtime's files go to {home}/runtime, the lock is installed into",
        f"# {home}/venv, the build step of service.yaml is run there, and the model lies in {home}/model.",
        "[Unit]",
        f"Description=VibeServe runtime of {manifest.target}",
        "After=network.target",
        "",
        "[Service]",
        "Type=exec",
        f"WorkingDirectory={home}/runtime",
        *(f'Environment="{key}={_quoted(_percent(str(value)))}"' for key, value in sorted(environment.items())),
        f"ExecStart={' '.join(_word(word) for word in fill(service['argv'], words))}",
        "KillMode=mixed",
        f"TimeoutStopSec={DRAIN_S}",
        "Restart=on-failure",
        "RestartSec=2",
        *(line.format(private_devices=private_devices) for line in HARDENING),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def kubernetes_documents(service: Mapping[str, Any], *, manifest: Manifest, threads: int) -> list[dict[str, Any]]:
    """A Deployment (apps/v1) and a Service (v1) of the image that the Dockerfile builds."""
    name = name_of(manifest)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/version": manifest.plan_id}
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT), "prometheus.io/path": "/metrics"}
    select = {"app.kubernetes.io/name": name}
    pod: dict[str, Any] = {
        "metadata": {"labels": labels, "annotations": scraped},
        "spec": {
            "terminationGracePeriodSeconds": DRAIN_S + 5,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True, "runAsUser": USER_ID, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(service, manifest=manifest, threads=threads)],
            "volumes": [
                {"name": "model", "persistentVolumeClaim": {"claimName": f"{name}-model", "readOnly": True}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    }
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": select}, "template": pod},
    }  # fmt: skip
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    front = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels},
        "spec": {"selector": select, "ports": ports},
    }  # fmt: skip
    return [deployment, front]


def name_of(manifest: Manifest) -> str:
    """The target as a DNS label."""
    return re.sub(r"[^a-z0-9]+", "-", manifest.target.lower()).strip("-")[:50] or "runtime"


def image_of(manifest: Manifest) -> str:
    return f"{name_of(manifest)}:{manifest.plan_id}"


def _container(service: Mapping[str, Any], *, manifest: Manifest, threads: int) -> dict[str, Any]:
    ready = (service.get("ready") or {}).get("path", "/health")
    limit = {"memory": f"{_memory_mib(manifest)}Mi"} if _memory_mib(manifest) else {}
    gpus = {"nvidia.com/gpu": str(len(manifest.hardware["gpus"]))} if manifest.hardware.get("gpus") else {}
    return {
        "name": "runtime",
        "image": image_of(manifest),
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {"httpGet": {"path": ready, "port": "http"}, "periodSeconds": 2, "failureThreshold": 300},
        "readinessProbe": {"httpGet": {"path": ready, "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}, "periodSeconds": 10, "failureThreshold": 6},
        "resources": {"requests": {"cpu": str(threads), **limit}, "limits": {**limit, **gpus}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "model", "mountPath": "/model", "readOnly": True}, {"name": "tmp", "mountPath": "/tmp"},
        ],
    }  # fmt: skip


def _memory_mib(manifest: Manifest) -> int:
    """Of the certified peak, with something to spare; 0 where none was measured."""
    peaks = [metric.candidate for metric in manifest.metrics if metric.name == "peak_memory"]
    return math.ceil(SPARE * max(peaks) * 1024) if peaks else 0


def _percent(text: str) -> str:
    """systemd expands `%`."""
    return text.replace("%", "%%")


def _word(word: str) -> str:
    """One word of ExecStart: systemd knows `%` and `$` as its own."""
    escaped = _percent(word.replace("\\", "\\\\")).replace("$", "$$")
    return f'"{_quoted(escaped)}"' if re.search(r"[\s\"';]", word) else escaped


def _quoted(text: str) -> str:
    return text.replace('"', '\\"')
