"""Filters that read the master's own files, like Salt's."""

import hashlib
import os
import stat


def file_hashsum(path, form="sha256", chunk_size=65536):
    if form not in hashlib.algorithms_available:
        raise ValueError(f"Invalid hash type: {form}")
    digest = hashlib.new(form)
    with open(path, "rb") as file:
        while chunk := file.read(chunk_size):
            digest.update(chunk)
    return digest.hexdigest()


def list_files(directory):
    out = {directory}
    for root, folders, files in os.walk(directory, followlinks=True):
        out.update(os.path.join(root, name) for name in files + folders)
    return list(out)


def is_bin_file(path):
    return os.path.isfile(path) and _binary(_head(path, 2048))


def is_text_file(path, blocksize=512):
    block = _head(path, blocksize)
    return block is not None and not _binary(block)


def is_empty(filename):
    try:
        return os.stat(filename).st_size == 0
    except OSError:
        return False


def _head(path, size):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return None


_TEXT = bytes(range(32, 127)) + b"\n\r\t\b"


def _binary(block):
    """Report whether a block is not UTF-8 or has many unprintable bytes."""
    if not block:
        return False
    if b"\0" in block:
        return True
    try:
        block.decode("utf-8")
        return False
    except UnicodeDecodeError:
        return len(block.translate(None, _TEXT)) / len(block) > 0.30


_EXTRA_PATH = ["/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]


def which(exe=None):
    if not exe:
        return None
    if _executable(exe):
        return exe
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), *_EXTRA_PATH]:
        path = os.path.normpath(os.path.join(folder, exe.lstrip("/")))
        if _executable(path):
            return path
    return None


def _executable(path):
    return os.path.isfile(path) and os.access(path, os.X_OK)


FILTERS = {
    "file_hashsum": file_hashsum,
    "is_bin_file": is_bin_file,
    "is_empty": is_empty,
    "is_text_file": is_text_file,
    "list_files": list_files,
    "which": which,
}
