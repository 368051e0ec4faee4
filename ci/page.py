#!/usr/bin/python3
"""Tests the status page in headless Chromium, of a server whose clients store and fetch meanwhile:
its numbers, on a desktop and on a phone, in light and dark mode, by keyboard, and by axe's rules
for accessibility; and of a server without tenants. Takes screenshots: ci/page.py [FOLDER]."""

import contextlib
import json
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import support
from support import PATIENCE, TARGET, Server, build_server, debian, expect, free_port

FOLDER = TARGET / "page"
support.install_python(FOLDER, "playwright==1.65.1")
support.run_in(FOLDER)
from playwright.sync_api import sync_playwright

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "is_mobile": True, "has_touch": True}
TENANTS = """\
visitor:secret
[tenant shop memory=32m]
shop:secret
[tenant search memory=32m prefix=search:]
search:secret
"""


def main():
    debian("chromium", "--no-install-recommends", "chromium", "fonts-dejavu-core")
    support.install_node(FOLDER, "axe-core@4.14.1")
    screenshots = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    program, admin, flags = build_server(), free_port(), ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags) as browser:
        with Server(program, "-m", "8", "-t", "1", "--admin", admin) as server:
            shows_no_tenants(Window(browser, admin, DESKTOP), server)
        with tempfile.NamedTemporaryFile("w") as users:
            users.write(TENANTS)
            users.flush()
            with Server(program, "-m", "128", "-t", "2", "--admin", admin, "-Y", users.name) as server:
                shows_everything(browser, admin, server, screenshots)


# --- What clients do meanwhile


class Load:
    """20,000 items, of which some are fetched, one of them often, and as many that are not there. A tenant has ten items, and
    finds three quarters of what it asks for."""

    NAMES = [f"key{n}" for n in range(20_000)]
    STORES = [f"set {name} 0 0 5 noreply\r\nvalue\r\n" for name in NAMES]
    FETCHES = [f"get {'key1' if n % 10 in (1, 3) else name if n % 2 else 'no' + name}\r\n" for n, name in enumerate(NAMES)]
    VISITS = [f"get {name}\r\n" for name in ("key1", "key2", "key3", "none")]

    def __init__(self, port):
        self.port, self.is_over = port, threading.Event()

    def run(self):
        self.converse("visitor", self.STORES)
        with self.connection("shop", self.STORES[:10]):
            # That connection stays open.
            while not self.is_over.wait(0.1):
                self.converse("visitor", self.FETCHES)
                self.converse("shop", self.VISITS)

    def converse(self, user, requests):
        with self.connection(user, requests):
            pass

    @contextlib.contextmanager
    def connection(self, user, requests):
        """A connection of the user, when all requests are answered."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            login = f"set login 0 0 {len(user) + 7}\r\n{user} secret\r\n"
            sender = threading.Thread(target=client.sendall, args=("".join([login, *requests, "mn\r\n"]).encode(),))
            sender.start()
            answers = b""
            while not answers.endswith(b"MN\r\n"):
                some = client.recv(1 << 16)
                expect(some, f"the server has closed the connection after {answers[-100:]!r}")
                answers = answers[-10:] + some
            sender.join()
            yield


# --- The page


class Window:
    def __init__(self, browser, admin, options):
        self.origin, self.complaints = f"http://127.0.0.1:{admin}/", []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self.note_request)
        self.page.goto(self.origin)

    def note_request(self, request):
        if not request.url.startswith((self.origin, "data:")):
            self.complaints.append(f"asks {request.url}")

    def shows(self, what, condition):
        """Waits until a condition in JavaScript is true."""
        # The page's security policy forbids Playwright's own way to wait, which evaluates a string
        # in the page.
        self.wait(f"the page does not show {what}", lambda: self.page.evaluate(condition))

    def wait(self, problem, is_so):
        """Waits, and lets Playwright handle events meanwhile."""
        end = time.monotonic() + PATIENCE
        while not is_so():
            expect(time.monotonic() < end, problem)
            self.page.wait_for_timeout(20)

    def text(self, name):
        return self.page.locator(f"#{name}").inner_text()

    def suits_screen_readers(self):
        self.page.evaluate((FOLDER / "node_modules/axe-core/axe.min.js").read_text())
        found = self.page.evaluate("window.axe.run()")
        told = [f"{rule['id']}: {', '.join(node['html'] for node in rule['nodes'])}" for rule in found["violations"]]
        expect(not told, told)
        expect(len(found["passes"]) > 15, "axe has looked at next to nothing")

    def brightness(self):
        red, green, blue = map(int, re.findall(r"\d+", self.page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3])
        return (red + green + blue) / 3

    def does_not_complain(self):
        expect(not self.complaints, self.complaints)


def shows_no_tenants(window, server):
    """The page must not show an empty table."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"set a 0 0 1\r\nx\r\n")
        expect(client.recv(100) == b"STORED\r\n", "an item is not stored")
    window.shows("one item", 'document.querySelector("#items").firstChild.textContent === "1"')
    # The tenants would be there from the second answer on.
    window.shows("a rate", r'/\d/.test(document.querySelector("#rate").textContent)')
    expect(not window.page.locator("#tenants-card").is_visible(), "the page shows tenants")
    expect(window.page.locator("section:visible").count() >= 7, "other sections are hidden")
    expect(window.page.get_by_text("tenant").filter(visible=True).count() == 0, "the page speaks of tenants")
    window.suits_screen_readers()
    window.does_not_complain()
    window.context.close()
    print("page: without tenants it shows none")


def shows_everything(browser, admin, server, screenshots):
    desktop = Window(browser, admin, DESKTOP)
    # Only a page that is open while the table grows shows it.
    desktop.shows("an empty table", 'document.querySelector("#resizes").textContent.includes("buckets")')
    load = Load(server.port)
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(load.run)
        try:
            phone = Window(browser, admin, PHONE)
            for name, window in (("desktop", desktop), ("phone", phone)):
                numbers_move(window)
                fits(window.page)
                window.suits_screen_readers()
                obeys_the_keyboard(window)
                take_screenshots(window.page, screenshots / name)
            expect(desktop.brightness() > 200 and phone.brightness() < 60, "it does not follow the colour scheme")
            desktop.does_not_complain()
            phone.does_not_complain()
            recovers(phone)
        finally:
            load.is_over.set()
        loading.result()
    print("page: numbers, sizes, colours, keyboard and names are as they should be")


NUMBERS = {
    "20,000 items": 'document.querySelector("#items").textContent.startsWith("20k")',
    "a rate": 'Number.parseFloat(document.querySelector("#rate").textContent) > 0',
    "a hit ratio of a half": 'document.querySelector("#ratio").textContent.startsWith("50.0 %")',
    "a latency": '/[nµm]s/.test(document.querySelector("#p99").textContent)',
    "the table grown": '/grew from/.test(document.querySelector("#steps").textContent)',
    "gets as most of the commands": 'document.querySelector("#commands th").textContent === "get"',
    "where the memory goes": r'/B of 64.0 MiB mapped, [\d.]+ % /.test(document.querySelector("#parts-sum").textContent)',
    "the values of 20,000 items": r'/^values.*97\.7 KiB/.test(document.querySelector("#parts").children[1].textContent)',
    "eleven parts": 'document.querySelectorAll("#parts tr").length === 11',
    # One key has a fifth of all reads.
    "the most read key": r'/^[0-9a-f]{16}\t.*\t(19|20|21)\.\d %$/.test(document.querySelector("#hot-read").innerText.split("\n")[0])',
    "written keys": 'document.querySelectorAll("#hot-write tr").length === 8',
    "an estimate for twice the memory": r'/^× 2\s128 MiB\s(\d+\.\d %|not known)$/.test(document.querySelectorAll("#sizes tr")[3]?.innerText)',
    "a tenant": r'/^shop\t[12]\t10\t[\d.]+ [KM]iB\t32\.0 MiB\t75\.0 %\t0\tnot known$/.test(document.querySelectorAll("#tenants tr")[1]?.innerText)',
    "all tenants": '[...document.querySelectorAll("#tenants th")].map((cell) => cell.textContent).join() === "(no tenant),shop,search"',
    "the working set": r'/^of 16 B to 64 B\s[\d.]+k\s/.test(document.querySelector("#working-set").innerText)',
}


def numbers_move(window):
    for what, condition in NUMBERS.items():
        window.shows(what, condition)
    before = json.dumps(window.text("about"))
    window.shows("other numbers", f'document.querySelector("#about").innerText !== {before}')
    for picture in ("Commands per second", "The table as it is resized", "Items per bucket"):
        box = window.page.get_by_role("img", name=re.compile(rf"{picture}.*: .*\d"))
        expect(box.count() == 1, f"no picture says what it shows of {picture}")
        expect(box.locator("path, rect").count() > 0, f"nothing is drawn of {picture}")


def fits(page):
    content, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    expect(content <= window, f"{content} pixels in a window of {window}")


FOCUSED = """() => {
  const element = document.activeElement;
  return [element.id || element.className || element.localName, parseFloat(getComputedStyle(element).outlineWidth) > 0];
}"""


def obeys_the_keyboard(window):
    """Everything that can be used is reached by Tab, in the order of the page, is seen to be
    reached, and does what it says."""
    page = window.page
    page.locator("body").focus()
    order = []
    for _ in range(4):
        page.keyboard.press("Tab")
        order.append(page.evaluate(FOCUSED))
    expect(order == [["pause", True], ["scroll", True], ["summary", True], ["scroll", True]], order)
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("row", name=re.compile(r"^0 [\d,]+ [\d,]+$")).wait_for()
    page.keyboard.press("Enter")
    pauses(window)


def pauses(window):
    """An answer that is on its way when the button is pressed changes nothing any more."""
    page, held = window.page, []
    page.route("**/stats.json", lambda route: held.append(route), times=1)
    window.wait("the page does not ask for numbers", lambda: held)
    button = page.get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press("Space")
    expect(button.get_attribute("aria-pressed") == "true", "the button is not pressed")
    before = window.text("about")
    with page.expect_response("**/stats.json") as answer:
        held[0].continue_()
    answer.value.finished()
    page.wait_for_timeout(100)
    expect(window.text("about") == before, "the page does not pause")
    expect(page.get_by_role("status").inner_text() == "Paused.", "the page does not say that it pauses")
    page.keyboard.press("Space")
    expect(button.get_attribute("aria-pressed") == "false", "the button is still pressed")


def take_screenshots(page, path):
    page.screenshot(path=f"{path}.png", full_page=True)
    page.locator("section", has_text="Most used keys").screenshot(path=f"{path}-hot-keys.png")
    page.locator("section", has_text="With other memory limits").screenshot(path=f"{path}-sizing.png")
    page.locator("#tenants-card").screenshot(path=f"{path}-tenants.png")


def recovers(window):
    """When the server is not to be reached the page says so, and recovers by itself."""
    window.context.set_offline(True)
    window.shows("that there is no answer", 'document.querySelector("#state").textContent.startsWith("No answer")')
    window.context.set_offline(False)
    window.shows("that there are answers again", 'document.querySelector("#state").textContent === ""')


main()
