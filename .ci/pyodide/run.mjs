// Runs pytest on CPython 3.14 inside this process.
//
//   node run.mjs PYODIDE SITE PYTEST_ARGS...
//
// PYODIDE is the folder of the npm package, SITE one of wheels unpacked for its platform. The
// repository is the current folder; it is mounted, not copied.
import { dirname, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [pyodide, site, ...args] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(resolve(pyodide, "pyodide.mjs")));
const python = await loadPyodide();

const folders = { "/repository": ".", "/site": site, "/seams": dirname(fileURLToPath(import.meta.url)) };
for (const [there, here] of Object.entries(folders)) {
    python.FS.mkdirTree(there);
    python.FS.mount(python.FS.filesystems.NODEFS, { root: resolve(here) }, there);
}

python.globals.set("given", python.toPy(args));
process.exitCode = python.runPython(`
import os
import sys

sys.dont_write_bytecode = True
sys.path[:0] = ["/repository", "/site", "/seams"]
os.chdir("/repository")

import pytest

print("== CPython", sys.version.split()[0], "on", sys.platform, flush=True)


class Count:
    passed = 0

    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed


count = Count()
code = pytest.main(["-p", "no:cacheprovider", "-p", "seams", *given], plugins=[count])
print("%d.%d: %d passed" % (*sys.version_info[:2], count.passed), flush=True)
int(code)
`);
