# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, driven over its DevTools pipe (NUL-separated JSON on descriptors 3 and 4): no
port, no package, and a network that answers nothing."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
         "--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--disable-default-apps", "--disable-extensions", "--metrics-recording-only",
         "--disable-dev-shm-usage", "--force-color-profile=srgb",
         # whatever asks for a host is told that there is none
         "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=http://127.0.0.1:9")


def program():
    return os.environ.get("WEFT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class PageError(Exception):
    """A script of the page, or the browser, failed."""


class Browser:
    def __init__(self, folder, timeout=120, flags=()):
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        self.timeout, self.number, self.events, self.buffer = timeout, 0, [], b""
        self.log = open(folder / "chromium.log", "w")
        command = [program(), *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        # the pipe's ends must be 3 and 4 exactly, and a shell can say so
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(["bash", "-c", script, "bash", *command], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, pass_fds=(to_browser, from_browser),
                                        env={**os.environ, "HOME": str(folder)})
        os.close(to_browser)
        os.close(from_browser)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    session = None

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(20)
        except (PageError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        finally:
            os.close(self.out)
            os.close(self.into)
            self.log.close()

    def _read(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise PageError(f"the browser said nothing for {self.timeout} s")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise PageError(f"the browser is gone (exit {self.process.poll()}); see {self.log.name}")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def evaluate(self, expression):
        """The value of an expression in the page, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise PageError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def open(self, path, width=1280, height=800, dark=False, scripts=True):
        """Opens a file, or an address, and waits until it was loaded; returns the seconds that took."""
        self.events.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.size(width, height)
        self.dark(dark)
        begin = time.monotonic()
        self.call("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            if time.monotonic() - begin > self.timeout:
                raise PageError(f"{path} did not load in {self.timeout} s")
            self.events.append(self._read(begin + self.timeout))
        if scripts:
            self.frame()
        return time.monotonic() - begin

    def frame(self):
        """Waits for the next frames, and for what waited on a short timer."""
        self.evaluate("new Promise(done => setTimeout(() => requestAnimationFrame(() => "
                      "requestAnimationFrame(() => done(1))), 150))")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, dark):
        self.call("Emulation.setEmulatedMedia", media="",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def key(self, key, **more):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.frame()

    def screenshot(self, path, whole=True):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print(self, path):
        pdf = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(pdf["data"]))

    def trouble(self):
        """What went wrong in the page since open: exceptions, console errors, refused loads."""
        out = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                out.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                out.append(params["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                out.append(str(params["args"]))
        return out

    def requests(self):
        """Every address that the page asked for since open."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] in ("Network.requestWillBeSent",)]
