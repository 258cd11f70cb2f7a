"""Bytes to samples: rates, widths, channels; and that parts give what the whole gives."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from runtime.audio import AudioError, Resampler, from_pcm16, read_wav
from runtime.forms import FormError, read_form


def wav_bytes(frames: bytes, *, width: int, channels: int = 1, rate_hz: int = 16000) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate_hz)
        out.writeframes(frames)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("width", "frames"),
    [(1, bytes([128, 192, 0])), (2, b"\x00\x00\x00\x40\x00\x80"), (3, b"\0\0\0\0\0\x40\0\0\x80"),
     (4, b"\0\0\0\0\0\0\0\x40\0\0\0\x80")],
)  # fmt: skip
def test_every_width_gives_the_same_samples(width: int, frames: bytes) -> None:
    samples, rate = read_wav(wav_bytes(frames, width=width))
    assert (samples.tolist(), rate) == ([0.0, 0.5, -1.0], 16000)


def test_channels_are_averaged() -> None:
    samples, _ = read_wav(wav_bytes(b"\x00\x40\x00\x00", width=2, channels=2))
    assert samples.tolist() == [0.25]


@pytest.mark.parametrize("data", [b"", b"RIFF", b"RIFF\x04\0\0\0WAVE", b"OggS" * 20])
def test_what_is_no_wav_is_said(data: bytes) -> None:
    with pytest.raises(AudioError, match="no WAV file"):
        read_wav(data)


def test_a_file_that_ends_early_is_refused_not_cut() -> None:
    with pytest.raises(AudioError, match="ends after 4 of the 8 bytes"):
        read_wav(wav_bytes(bytes(8), width=2)[:-4])


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(AudioError, match="odd"):
        from_pcm16(b"\0\0\0")


@pytest.mark.parametrize("rate_hz", [8000, 11025, 22050, 24000, 44100, 48000])
def test_a_tone_stays_a_tone(rate_hz: int) -> None:
    seconds = 0.5
    tone = np.sin(2 * np.pi * 440 * np.arange(round(rate_hz * seconds)) / rate_hz).astype(np.float32)
    resampler = Resampler(rate_hz, to_hz=16000)
    found = np.concatenate((resampler.push(tone), resampler.finish()))
    assert abs(len(found) - 16000 * seconds) <= 1
    expected = np.sin(2 * np.pi * 440 * np.arange(len(found)) / 16000)
    assert np.abs(found - expected)[200:-200].max() < 0.01


@pytest.mark.parametrize("rate_hz", [8000, 22050, 44100, 48000])
def test_parts_give_exactly_the_whole(rate_hz: int) -> None:
    samples = np.random.default_rng(1).standard_normal(9001).astype(np.float32)
    whole, parts = Resampler(rate_hz, to_hz=16000), Resampler(rate_hz, to_hz=16000)
    expected = np.concatenate((whole.push(samples), whole.finish()))
    made = [parts.push(samples[place : place + 700]) for place in range(0, len(samples), 700)]
    np.testing.assert_array_equal(np.concatenate((*made, parts.finish())), expected)


def test_what_is_above_the_new_band_is_gone() -> None:
    tone = np.sin(2 * np.pi * 11000 * np.arange(48000) / 48000).astype(np.float32)
    assert np.abs(Resampler(48000, to_hz=16000).push(tone)[200:-200]).max() < 0.01


def test_equal_rates_change_nothing() -> None:
    samples = np.arange(5, dtype=np.float32)
    resampler = Resampler(16000, to_hz=16000)
    assert resampler.push(samples).tolist() == samples.tolist() and not len(resampler.finish())


@pytest.mark.parametrize("rate_hz", [0, 7999, 48001, 192000])
def test_rates_that_are_none_are_refused(rate_hz: int) -> None:
    with pytest.raises(AudioError, match="supported"):
        Resampler(rate_hz, to_hz=16000)


def test_a_form_is_read() -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n\0\r\n\1\r\n"
        b"--b--\r\n"
    )
    form = read_form(body, content_type='multipart/form-data; boundary="b"')
    assert (form["model"].text, form["file"].data, form["file"].file_name) == ("m", b"\0\r\n\1", "a.wav")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"--b--\r\n", "application/json"),
        (b"--b--\r\n", "multipart/form-data"),
        (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx', "multipart/form-data; boundary=b"),
        (b"--b\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b"),
    ],
)
def test_what_is_no_form_is_said(body: bytes, content_type: str) -> None:
    with pytest.raises(FormError):
        read_form(body, content_type=content_type)
