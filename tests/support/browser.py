"""Headless Chromium over its debugging pipe: no driver, no port. Tells what a page complains of and asks for."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

SECONDS = 60  # that an answer may take
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
        "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __init__(self, program: str):
        self.profile = tempfile.TemporaryDirectory()
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        words = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]
        words += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"]

        def hand_over():  # Chromium reads commands from 3 and answers on 4
            first, second = os.dup(to_read), os.dup(from_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*words, "about:blank"], preexec_fn=hand_over, close_fds=False, stdin=silent, stdout=silent, stderr=silent
        )
        os.close(to_read)
        os.close(from_write)
        self.number, self.bytes, self.events = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self.to)
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)
        self.profile.cleanup()

    def message(self) -> dict:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self.bytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            more = os.read(self.back, 1 << 20)
            if not more:
                raise RuntimeError("Chromium has ended")
            self.bytes += more
        text, _, self.bytes = self.bytes.partition(b"\0")
        return json.loads(text)

    def call(self, method: str, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def evaluate(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def open(self, page: Path, width: int = 1200, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Shows a page and waits until its charts are drawn."""
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + SECONDS
        while self.evaluate("document.documentElement?.dataset.drawn || ''") == "":
            if time.monotonic() > deadline:
                raise TimeoutError(f"the charts of {page} were not drawn; {self.complaints()}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        pressed = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def point(self, selector: str, x: float = 0.5, y: float = 0.5, click: bool = False) -> None:
        """The mouse goes to a place in an element, as shares of its width and height."""
        found = f"document.querySelector({json.dumps(selector)})"
        box = self.evaluate(
            f"(({{left, top, width, height}}) => [left + {x} * width, top + {y} * height])"
            f"(({found}.scrollIntoView({{block: 'center'}}), {found}.getBoundingClientRect()))"
        )
        place = {"x": box[0], "y": box[1]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def complaints(self) -> list[str]:
        """What a console would show of the page since it was opened: errors, warnings, exceptions."""
        found = []
        for event in self.events:
            kind, what = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(str(what["exceptionDetails"]))
            if kind == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                found.append(str([one.get("value", one.get("description")) for one in what["args"]]))
            if kind == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """What the page asked for, beyond itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:"))][1:]

    def picture(self, file: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def print(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))
