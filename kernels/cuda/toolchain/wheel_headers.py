"""The headers of a wheel whose libraries are too large to fetch for them: by requests for ranges of the archive."""
import base64
import csv
import hashlib
import html
import io
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile

TIMEOUT_S = 60
READ_AHEAD = 1 << 18


class RemoteFile(io.RawIOBase):
    """A file of a server that answers to ranges. Any other answer is an OSError."""

    def __init__(self, url):
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT_S) as answer:
            length = answer.headers["Content-Length"] or ""
        if not length.isdecimal():
            raise OSError(f"{url}: no length is told")
        self.size = int(length)

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=os.SEEK_SET):
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        end = min(self.size, self.at + len(buffer))
        if self.at >= end:
            return 0
        asked = urllib.request.Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"})
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            if answer.status != 206:
                raise OSError(f"{self.url}: no ranges ({answer.status})")
            data = answer.read(end - self.at)
        buffer[:len(data)] = data
        self.at += len(data)
        return len(data)


def index():
    """The package index that pip asks."""
    told = os.environ.get("PIP_INDEX_URL") or subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True).stdout.strip()
    return (told or "https://pypi.org/simple").rstrip("/")


def url_of(package, version):
    """Of the wheel for Linux on x86-64."""
    page = f"{index()}/{package}/"
    with urllib.request.urlopen(page, timeout=TIMEOUT_S) as answer:
        links = re.findall(r'href="([^"#]+)', answer.read().decode(errors="replace"))
    name = re.compile(rf"/{package.replace('-', '_')}-{re.escape(version)}-[^/]*manylinux[^/]*x86_64\.whl$")
    found = [link for link in map(html.unescape, links) if name.search(link)]
    if not found:
        raise OSError(f"{page}: no wheel of {version}")
    return urllib.parse.urljoin(page, found[0])


def fetch(package, version, folder):
    """Puts the wheel's headers into `folder`, each as the wheel's own list of digests has it. An OSError or a
    zipfile.BadZipFile says why that cannot be."""
    with zipfile.ZipFile(io.BufferedReader(RemoteFile(url_of(package, version)), READ_AHEAD)) as wheel:
        record = next((name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")), None)
        if record is None:
            raise OSError(f"{package} {version} has no list of digests")
        digests = {row[0]: row[1] for row in csv.reader(wheel.read(record).decode(errors="replace").splitlines()) if len(row) > 1}
        for name in wheel.namelist():
            if not name.endswith(".h"):
                continue
            data = wheel.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if digests.get(name) != f"sha256={digest}":
                raise OSError(f"{name} of {package} {version} is not what its wheel lists")
            (folder / name.rsplit("/", 1)[1]).write_bytes(data)
