// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/archives.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "launcher/preload/memory_file.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;
using namespace ddp::testing;

TEST_CASE("warm parent archive: Python finds its modules, their checksums and their sources, without zlib",
          "[launcher][unit]") {
  if (run({"sh", "-c", "command -v python3"}).code != 0) skip("there is no python3");
  const Descriptor file = memory_file("archive", warm_parent_archive());
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
  const Result result = run({"python3", "-c",
                             "import sys, zipfile\n"
                             "sys.modules['zlib'] = None\n"
                             "archive = zipfile.ZipFile(sys.argv[1])\n"
                             "print(archive.testzip(), archive.namelist())\n"
                             "for name, source in ('sitecustomize.py', 'warm_parent.py'), ('auto_imports.py',) * 2:\n"
                             "    print(archive.read(name) == open(sys.argv[2] + '/' + source, 'rb').read())\n"
                             "sys.path.insert(0, sys.argv[1])\n"
                             "import auto_imports\n"
                             "print('torch' in auto_imports.KNOWN_SAFE)\n",
                             path, PRELOAD_FOLDER});
  CHECK(result.err.empty());
  CHECK(result.out == "None ['sitecustomize.py', 'auto_imports.py']\nTrue\nTrue\nTrue\n");
}
