"""Ed25519 signatures over canonical bytes, and key files.

Three kinds of keys exist: the bot's order key (loaded by `incidents.mint` alone), each executor's outcome key, and the key of
chain heads. A verifier accepts several public keys, so that a key can be rotated.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from catalog.orders import Signed


class SignatureRefused(Exception):
    """A signature, or the key it names, is not accepted. The message says which; give up on the document."""


class KeyUnreadable(Exception):
    """A key file is missing, readable by others or not an Ed25519 key. The message says what to do."""


def key_id(public: Ed25519PublicKey) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the raw public key."""
    return hashlib.sha256(public.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def write_key_pair(private_path: Path, public_path: Path) -> str:
    """Make a key pair on disk; the private file gets mode 0600 and is never overwritten. Returns the key id."""
    key = Ed25519PrivateKey.generate()
    descriptor = os.open(private_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public_path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return key_id(key.public_key())


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """Load a private key that only its owner can read."""
    try:
        if path.stat().st_mode & 0o077:
            raise KeyUnreadable(f"{path} can be read by others; run: chmod 600 {path}")
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise KeyUnreadable(f"{path} is not a readable private key ({error}); make one with: sre-bot keys") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnreadable(f"{path} is not an Ed25519 key; make one with: sre-bot keys")
    return key


def load_public_keys(*paths: Path) -> dict[str, Ed25519PublicKey]:
    """Public keys by key id; two during a rotation."""
    keys: dict[str, Ed25519PublicKey] = {}
    for path in paths:
        try:
            key = load_pem_public_key(path.read_bytes())
        except (OSError, ValueError) as error:
            raise KeyUnreadable(f"{path} is not a readable public key: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise KeyUnreadable(f"{path} is not an Ed25519 key")
        keys[key_id(key)] = key
    return keys


def sign(private: Ed25519PrivateKey, body: bytes) -> Signed:
    """Sign canonical bytes as they are."""
    signature = base64.b64encode(private.sign(body)).decode()
    return Signed(body=body.decode(), key_id=key_id(private.public_key()), signature=signature)


def verified_body(signed: Signed, accepted: Mapping[str, Ed25519PublicKey]) -> bytes:
    """The signed bytes, once the signature of an accepted key is proven.

    Raises:
        SignatureRefused: unknown key id or wrong signature.
    """
    public = accepted.get(signed.key_id)
    if public is None:
        raise SignatureRefused(f"key {signed.key_id} is not among the accepted keys ({', '.join(sorted(accepted)) or 'none'})")
    try:
        public.verify(base64.b64decode(signed.signature, validate=True), signed.body.encode())
    except (InvalidSignature, ValueError) as error:
        raise SignatureRefused(f"the signature by key {signed.key_id} does not fit the document") from error
    return signed.body.encode()
