"""A real headless Chromium, driven through its own DevTools protocol: nothing to install beyond the browser itself."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import websocket

PATIENCE = 1800
"""Seconds after which something hangs, on the busiest machine."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str | None:
    """The path of the first Chromium on the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. `problems` are console errors and exceptions, `requests` the addresses that pages asked for."""

    def __init__(self, program: str, profile: Path) -> None:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars"]
        options += ["--no-first-run", "--disable-background-networking", "--remote-allow-origins=*"]
        with (profile.parent / "chromium.log").open("w") as log:
            self.process = subprocess.Popen(
                [program, *options, f"--user-data-dir={profile}", "about:blank"], stdout=log, stderr=log
            )
        port = self._port(profile / "DevToolsActivePort")
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{port[0]}{port[1]}", timeout=PATIENCE)
        self.count, self.session = 0, ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _port(self, path: Path) -> list[str]:
        for _ in range(600):
            lines = path.read_text().split() if path.is_file() else []
            if len(lines) == 2:
                return lines
            if self.process.poll() is not None:
                raise RuntimeError(f"Chromium ended with code {self.process.returncode} before it was ready")
            time.sleep(0.1)
        raise RuntimeError("Chromium did not open its debugging port within a minute")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; events on the way are noted."""
        sent = self._send(method, **parameters)
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == sent:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer.get("method", ""), answer.get("params", {}))

    def _send(self, method: str, **parameters: Any) -> int:
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        self.socket.send(json.dumps(message | ({"sessionId": self.session} if self.session else {})))
        return self.count

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(event["exceptionDetails"].get("text", "exception"))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.problems.append(str(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Page.javascriptDialogOpening":  # "leave this page?" would wait for its answer for ever
            self._send("Page.handleJavaScriptDialog", accept=True)

    def open(self, url: str, width: int, scheme: str = "light", height: int = 900) -> None:
        """Load a page at a width, as a phone below 600 pixels, and wait until it has loaded or turns out a download."""
        self.resize(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.loaded = False
        if self.call("Page.navigate", url=url).get("errorText") == "net::ERR_ABORTED":
            return  # a file to download
        while not self.loaded:
            event = json.loads(self.socket.recv())
            self._note(event.get("method", ""), event.get("params", {}))

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description", "script failed"))
        return done["result"].get("value")

    def press(self, key: str, control: bool = False) -> None:
        """Press and release a key in the focused element."""
        text = {"Enter": "\r"}.get(key, "")
        code = {"Enter": 13, "Tab": 9}.get(key) or ord(key.upper())
        for kind in ("keyDown", "keyUp"):
            pressed = {"type": kind, "key": key, "text": text, "modifiers": 2 * control, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", **pressed)

    def click(self, script: str, times: int = 1) -> None:
        """Click with the mouse in the middle of what a JavaScript expression gives: an element or a range of text."""
        box = self.run(
            f"""(() => {{
              const found = {script};
              (found.startContainer?.parentElement ?? found).scrollIntoViewIfNeeded();
              const box = found.getBoundingClientRect();
              return [box.x, box.y, box.width, box.height];
            }})()"""
        )
        place = {"x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2, "button": "left"}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, clickCount=count, **place)

    def write(self, text: str) -> None:
        """Type a text where the cursor is, in place of what is selected."""
        self.call("Input.insertText", text=text)

    def wait(self, script: str, seconds: float = PATIENCE) -> None:
        """Until a JavaScript expression or what it promises is true (an element that is there), but not for ever."""
        end = time.monotonic() + seconds
        while not self.run(f"Promise.resolve({script}).then(Boolean)"):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {seconds:.0f} s: {script}")
            time.sleep(0.1)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        phone = width < 600  # such widths are shown as a phone shows them
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def picture(self) -> str:
        """What the window shows, as a PNG in base64."""
        return self.call("Page.captureScreenshot")["data"]

    def screenshot(self, path: Path) -> Path:
        """A picture of the page, in full length."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def close(self) -> None:
        """End this browser."""
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=30)
