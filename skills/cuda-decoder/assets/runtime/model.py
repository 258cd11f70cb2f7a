"""The decoder, eager: every step launches its kernels one by one."""

from __future__ import annotations

from .device_model import DeviceModel


class Model(DeviceModel):
    """See `interfaces.ModelLike`."""
