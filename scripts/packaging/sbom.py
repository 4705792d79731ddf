#!/usr/bin/env python3
"""Writes the SBOM of a release (SPDX 2.3, JSON): its files with their checksums, and the libraries copied into them.

scripts/packaging/sbom.py FOLDER DDPRUN...: which libraries these are, `DDPRUN --print versions` says of each build; FOLDER
has the files and gets ddprun-VERSION.spdx.json. Two runs write the same bytes: the document's time is SOURCE_DATE_EPOCH (seconds since
1970). With spdx-tools (PyPI) in the Python that runs it, the document is checked as well; otherwise it says that it was not.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

# Licence of each library, as SPDX names it, and where it comes from. A library that is new has to be added here.
LIBRARIES = {
    "Boost": ("BSL-1.0", "https://www.boost.org"),
    "CLI11": ("BSD-3-Clause", "https://github.com/CLIUtils/CLI11"),
    "fmt": ("MIT", "https://github.com/fmtlib/fmt"),
    "libc++": ("Apache-2.0 WITH LLVM-exception", "https://libcxx.llvm.org"),
    "libsodium": ("ISC", "https://libsodium.org"),
    "libstdc++": ("GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "nlohmann_json": ("MIT", "https://github.com/nlohmann/json"),
    "spdlog": ("MIT", "https://github.com/gabime/spdlog"),
    "utfcpp": ("BSL-1.0", "https://github.com/nemtrif/utfcpp"),
    "xxHash": ("BSD-2-Clause", "https://xxhash.com"),
}
RELEASED = (".tar.gz", ".whl", ".deb", ".tar")


def libraries_in(says: str) -> "dict[str, str]":
    """Returns the version of each library by its name, from what `ddprun --print versions` prints."""
    versions = {}
    for line in says.splitlines():
        copied = re.match(r"copied into \S+: (.*)", line)
        for entry in copied.group(1).split(", ") if copied else []:
            name, _, version = entry.partition(" ")
            versions[name] = version.replace("of ", "")  # "libstdc++ of GNU 12.2.0"
    unknown = sorted(set(versions) - set(LIBRARIES))
    if not versions or unknown:
        sys.exit(f"sbom.py: libraries without a licence in LIBRARIES: {unknown or 'none found at all'} in:\n{says}")
    return versions


def checksums(path: str) -> "list[dict[str, str]]":
    with open(path, "rb") as file:
        content = file.read()
    return [{"algorithm": name, "checksumValue": hashlib.new(name.lower(), content).hexdigest()}
            for name in ("SHA1", "SHA256")]


def package(name: str, version: str, licence: str, place: str) -> "dict[str, object]":
    return {"name": name, "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "versionInfo": version,
            "downloadLocation": place, "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence,
            "copyrightText": "NOASSERTION"}


def document(folder: str, programs: "list[str]") -> "dict[str, object]":
    says = "".join(subprocess.run([program, "--print", "versions"], check=True, capture_output=True, text=True).stdout
                   for program in programs)
    version = says.split()[1]
    own = package("ddprun", version, "BSD-3-Clause", "NOASSERTION")
    libraries = [package(name, of_library, *LIBRARIES[name]) for name, of_library in sorted(libraries_in(says).items())]
    files = [{"fileName": "./" + name, "SPDXID": "SPDXRef-File-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
              "checksums": checksums(os.path.join(folder, name)), "licenseConcluded": "NOASSERTION",
              "copyrightText": "NOASSERTION"}
             for name in sorted(os.listdir(folder)) if name.endswith(RELEASED)]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"])]
    relations += [(own["SPDXID"], "CONTAINS", library["SPDXID"]) for library in libraries]
    relations += [("SPDXRef-DOCUMENT", "DESCRIBES", file["SPDXID"]) for file in files]
    created = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"ddprun-{version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/ddprun-{version}-{digest}",
            "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: ddprun-sbom.py"]},
            "packages": [own, *libraries], "files": files,
            "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                              for one, kind, other in relations]}


def check(path: str) -> None:
    """Ends the program with the faults that spdx-tools finds in the document."""
    try:
        from spdx_tools.spdx.parser.parse_anything import parse_file
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
    except ImportError:
        print(f"{path}: not checked: this Python has no spdx-tools")
        return
    faults = validate_full_spdx_document(parse_file(path))
    if faults:
        sys.exit(f"{path} is no valid SPDX document:\n" + "\n".join(fault.validation_message for fault in faults))
    print(f"{path}: spdx-tools finds it valid")


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    contents = document(sys.argv[1], sys.argv[2:])
    path = os.path.join(sys.argv[1], f"{contents['name']}.spdx.json")
    with open(path, "w") as file:
        json.dump(contents, file, indent=1)
        file.write("\n")
    check(path)


main()
