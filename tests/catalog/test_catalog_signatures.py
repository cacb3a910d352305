"""Signatures over canonical bytes; keys that others could read are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.signatures import (
    KeyUnreadable,
    SignatureRefused,
    load_private_key,
    load_public_keys,
    sign,
    verified_body,
    write_key_pair,
)


def test_a_signed_body_comes_back_and_two_keys_are_accepted_during_rotation(tmp_path: Path) -> None:
    old, new = (
        write_key_pair(tmp_path / "old.key", tmp_path / "old.pub"),
        write_key_pair(tmp_path / "new.key", tmp_path / "new.pub"),
    )
    accepted = load_public_keys(tmp_path / "old.pub", tmp_path / "new.pub")
    assert set(accepted) == {old, new}
    for name in ("old", "new"):
        signed = sign(load_private_key(tmp_path / f"{name}.key"), '{"ä":1}'.encode())
        assert verified_body(signed, accepted) == '{"ä":1}'.encode()


def test_a_changed_body_or_an_unknown_key_is_refused(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "a.key", tmp_path / "a.pub")
    write_key_pair(tmp_path / "b.key", tmp_path / "b.pub")
    signed = sign(load_private_key(tmp_path / "a.key"), b"{}")
    accepted = load_public_keys(tmp_path / "a.pub")
    with pytest.raises(SignatureRefused):
        verified_body(signed.model_copy(update={"body": "{ }"}), accepted)
    with pytest.raises(SignatureRefused):
        verified_body(signed.model_copy(update={"signature": "not base64"}), accepted)
    with pytest.raises(SignatureRefused, match="not among"):
        verified_body(signed, load_public_keys(tmp_path / "b.pub"))


def test_a_private_key_that_others_can_read_is_refused_and_never_overwritten(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "a.key", tmp_path / "a.pub")
    with pytest.raises(FileExistsError):
        write_key_pair(tmp_path / "a.key", tmp_path / "a.pub")
    (tmp_path / "a.key").chmod(0o644)
    with pytest.raises(KeyUnreadable, match="chmod 600"):
        load_private_key(tmp_path / "a.key")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----\n"])
def test_what_is_no_key_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyUnreadable):
        load_private_key(path)
    with pytest.raises(KeyUnreadable):
        load_public_keys(path)
    with pytest.raises(KeyUnreadable):
        load_private_key(tmp_path / "absent")
