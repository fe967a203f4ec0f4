"""Headless Chromium by its DevTools protocol over a pipe: no driver, no port, a profile a test."""
import base64
import json
import os
import select
import signal
import subprocess
import time

PATIENCE = 60
WORDS = ["chromium", "--headless=new", "--remote-debugging-pipe", "--no-first-run",
         "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-default-apps",
         "--disable-dev-shm-usage", "--no-default-browser-check", "--mute-audio"]


class Browser:
    def __init__(self, profile, *options):
        our_read, its_write = os.pipe()
        its_read, our_write = os.pipe()
        words = [*WORDS, f"--user-data-dir={profile}", *options]
        if os.geteuid() == 0:
            words.append("--no-sandbox")
        # The browser has the pipe as descriptors 3 and 4.
        shell = f'exec "$@" 3<&{its_read} 4>&{its_write}'
        with open(os.path.join(profile, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", shell, "bash", *words], pass_fds=(its_read, its_write),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {"HOME": profile, "DBUS_SESSION_BUS_ADDRESS": "disabled:"})
        os.close(its_read)
        os.close(its_write)
        self.read, self.write = our_read, our_write
        self.left = b""
        self.next = 0
        self.events = []

    def receive(self, give_up):
        while b"\0" not in self.left:
            remaining = give_up - time.monotonic()
            assert remaining > 0 and select.select([self.read], [], [], remaining)[0], \
                "the browser does not answer"
            part = os.read(self.read, 1 << 16)
            assert part, "the browser has ended"
            self.left += part
        message, _, self.left = self.left.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.next += 1
        number = self.next
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        give_up = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(give_up)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def end(self):
        """Orderly, so that no helper of it still writes to the profile."""
        try:
            self.call("Browser.close")
            self.process.wait(PATIENCE)
        except (AssertionError, subprocess.TimeoutExpired, BrokenPipeError):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.read)
        os.close(self.write)


class Page:
    """A page of its own, with what it asked for and what it complained of."""

    def __init__(self, browser, width=1360, height=1000):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target,
                                    flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Network", "Log":
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def text(self, selector="body"):
        """As a person sees it; empty if there is no such element yet."""
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def await_value(self, what, expression, condition=bool):
        """The value once it is good; elements may not be there yet."""
        give_up = time.monotonic() + PATIENCE
        while True:
            answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            value = answer["result"].get("value")
            if "exceptionDetails" not in answer and value is not None and condition(value):
                return value
            assert time.monotonic() < give_up, f"waited in vain: {what}\n{self.text()}"
            time.sleep(0.1)

    def press(self, key, code=0):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code,
                  **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def told(self, method):
        """The parameters of all events of that name so far."""
        self.value("1")  # So that none is on its way.
        return [e["params"] for e in self.browser.events
                if e.get("method") == method and e.get("sessionId") == self.session]

    def requests(self):
        return [e["request"]["url"] for e in self.told("Network.requestWillBeSent")]

    def complaints(self):
        entries = [e["entry"] for e in self.told("Log.entryAdded")]
        thrown = self.told("Runtime.exceptionThrown")
        return [e for e in entries if e["level"] == "error"] + thrown
