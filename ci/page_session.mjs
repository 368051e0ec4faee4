// Looks at the status page of a server whose clients store and fetch meanwhile.
// Arguments: "all", its two ports, where the modules are, the browser, and where screenshots go; or "without-tenants", and the
// same without screenshots, if the server has no users and no tenants.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createConnection } from "node:net";

const [scene, admin, port, modules, browserPath, screenshots] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const origin = `http://127.0.0.1:${admin}`;

// Asks the cache as a user until all is answered, and then closes the connection.
function converse(user, requests, end, close = (socket) => socket.destroy()) {
  return new Promise((resolve, reject) => {
    const login = `set login 0 0 ${user.length + 7}\r\n${user} secret\r\n`;
    const socket = createConnection(port, "127.0.0.1", () => socket.write(login + requests));
    let answers = "";
    const closed = () => reject(new Error(`the server has closed the connection after ${JSON.stringify(answers)}`));
    socket.on("error", reject).on("close", closed).on("data", (data) => {
      answers += data;
      if (answers.endsWith(end)) resolve(close(socket));
    });
  });
}

// 20,000 items, of which some are fetched, one of them often, and as many that are not there.
const names = Array.from({ length: 20000 }, (_, n) => `key${n}`);
const stores = names.map((name) => `set ${name} 0 0 5 noreply\r\nvalue\r\n`).join("") + "mn\r\n";
const fetches = names.map((name, n) => `get ${n % 10 === 1 || n % 10 === 3 ? "key1" : n % 2 ? name : "no" + name}\r\n`).join("") + "mn\r\n";
// A tenant has ten items, and finds three quarters of what it asks for.
const sales = names.slice(0, 10).map((name) => `set ${name} 0 0 5 noreply\r\nvalue\r\n`).join("") + "mn\r\n";
const visits = "get key1\r\nget key2\r\nget key3\r\nget none\r\nmn\r\n";
let isOver = false;
async function load() {
  await converse("visitor", stores, "MN\r\n");
  // This connection stays open.
  const idle = await converse("shop", sales, "MN\r\n", (socket) => socket);
  while (!isOver) {
    await converse("visitor", fetches, "MN\r\n");
    await converse("shop", visits, "MN\r\n");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  idle.destroy();
}

const text = (page, id) => page.locator(`#${id}`).innerText();
// Waits until the page shows that.
const shows = (page, what, condition) => page.waitForFunction(condition, null, { timeout: 30000 }).catch(() => assert.fail(`the page does not show ${what}`));

async function open(browser, name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => request.url().startsWith(`${origin}/`) || request.url().startsWith("data:") || complaints.push(`asks ${request.url()}`));
  await page.goto(`${origin}/`);
  return { name, page, complaints, context };
}

async function numbersMove(page) {
  await shows(page, "20,000 items", () => document.querySelector("#items").textContent.startsWith("20k"));
  await shows(page, "a rate", () => Number.parseFloat(document.querySelector("#rate").textContent) > 0);
  await shows(page, "a hit ratio of a half", () => document.querySelector("#ratio").textContent.startsWith("50.0 %"));
  await shows(page, "a latency", () => /[nµm]s/.test(document.querySelector("#p99").textContent));
  await shows(page, "the table grown", () => /grew from/.test(document.querySelector("#steps").textContent));
  await shows(page, "gets as most of the commands", () => document.querySelector("#commands th").textContent === "get");
  await shows(page, "where the memory goes", () => /B of 64.0 MiB mapped, [\d.]+ % /.test(document.querySelector("#parts-sum").textContent));
  await shows(page, "the values of 20,000 items", () => /^values.*97\.7 KiB/.test(document.querySelector("#parts").children[1].textContent));
  assert.equal(await page.locator("#parts tr").count(), 11);
  // One key has a fifth of all reads.
  await shows(page, "the most read key", () => /^[0-9a-f]{16}\t.*\t(19|20|21)\.\d %$/.test(document.querySelector("#hot-read").innerText.split("\n")[0]));
  await shows(page, "written keys", () => document.querySelectorAll("#hot-write tr").length === 8);
  await shows(page, "an estimate for twice the memory", () => /^× 2\s128 MiB\s(\d+\.\d %|not known)$/.test(document.querySelectorAll("#sizes tr")[3]?.innerText));
  await shows(page, "a tenant", () => /^shop\t[12]\t10\t[\d.]+ [KM]iB\t32\.0 MiB\t75\.0 %\t0\tnot known$/.test(document.querySelectorAll("#tenants tr")[1]?.innerText));
  await shows(page, "all tenants", () => [...document.querySelectorAll("#tenants th")].map((cell) => cell.textContent).join() === "(no tenant),shop,search");
  await shows(page, "the working set", () => /^of 16 B to 64 B\s[\d.]+k\s/.test(document.querySelector("#working-set").innerText));
  const before = await text(page, "about");
  await page.waitForFunction((before) => document.querySelector("#about").textContent !== before, before);
  for (const picture of ["Commands per second", "The table as it is resized", "Items per bucket"]) {
    const box = page.getByRole("img", { name: new RegExp(`${picture}.*: .*\\d`) });
    assert.equal(await box.count(), 1, `no picture says what it shows of ${picture}`);
    assert.ok(await box.locator("path, rect").count() > 0, `nothing is drawn of ${picture}`);
  }
}

async function fits(page) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(content <= window, `${content} pixels in a window of ${window}`);
}

// Everything that can be used is reached by Tab, in the order of the page, is seen to be reached, and does what it says.
async function obeysTheKeyboard(page) {
  const here = () => page.evaluate(() => {
    const element = document.activeElement;
    return [element.id || element.className || element.localName, parseFloat(getComputedStyle(element).outlineWidth) > 0];
  });
  await page.locator("body").focus();
  const order = [];
  for (let n = 0; n < 4; n++) {
    await page.keyboard.press("Tab");
    order.push(await here());
  }
  assert.deepEqual(order, [["pause", true], ["scroll", true], ["summary", true], ["scroll", true]]);
  await page.locator("summary").focus();
  await page.keyboard.press("Enter");
  await page.getByRole("row", { name: /^0 [\d,]+ [\d,]+$/ }).waitFor();
  await page.keyboard.press("Enter");
  // An answer that is on its way when the button is pressed changes nothing any more.
  let release;
  const isHeld = new Promise((asked) => page.route("**/stats.json", async (route) => {
    await new Promise((resolve) => asked(release = resolve));
    await route.continue();
  }, { times: 1 }));
  await isHeld;
  const pause = page.getByRole("button", { name: "Pause" });
  await pause.focus();
  await page.keyboard.press("Space");
  assert.equal(await pause.getAttribute("aria-pressed"), "true");
  const before = await text(page, "about");
  const answer = page.waitForResponse("**/stats.json");
  release();
  await (await answer).finished();
  await page.waitForTimeout(100);
  assert.equal(await text(page, "about"), before);
  assert.equal(await page.getByRole("status").innerText(), "Paused.");
  await page.keyboard.press("Space");
  assert.equal(await pause.getAttribute("aria-pressed"), "false");
}

async function suitsScreenReaders(page, name) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run());
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(", ")}`);
  assert.deepEqual(told, [], name);
  assert.ok(passes.length > 15, "axe has looked at next to nothing");
}

const brightness = (page) => page.evaluate(() => {
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
  return (red + green + blue) / 3;
});

// The same page, which must not show an empty table.
async function showsNoTenants(browser) {
  const { page, complaints } = await open(browser, "without tenants", { viewport: { width: 1280, height: 900 } });
  await new Promise((resolve, reject) => createConnection(port, "127.0.0.1").on("error", reject).on("data", resolve).write("set a 0 0 1\r\nx\r\n"));
  await shows(page, "one item", () => document.querySelector("#items").firstChild.textContent === "1");
  // The tenants would be there from the second answer on.
  await shows(page, "a rate", () => /\d/.test(document.querySelector("#rate").textContent));
  assert.equal(await page.locator("#tenants-card").isVisible(), false, "the page shows tenants");
  assert.ok(await page.locator("section:visible").count() >= 7, "other sections are hidden");
  assert.equal(await page.getByText("tenant").filter({ visible: true }).count(), 0, "the page speaks of tenants");
  await suitsScreenReaders(page, "without tenants");
  assert.deepEqual(complaints, [], "without tenants");
}

const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
if (scene === "without-tenants") {
  await showsNoTenants(browser);
  await browser.close();
  console.log("page: without tenants it shows none");
  process.exit();
}
const desktop = await open(browser, "desktop", { viewport: { width: 1280, height: 900 } });
// Only a page that is open while the table grows shows it.
await shows(desktop.page, "an empty table", () => document.querySelector("#resizes").textContent.includes("buckets"));
const loading = load();
const phone = await open(browser, "phone", { viewport: { width: 360, height: 740 }, colorScheme: "dark", isMobile: true, hasTouch: true });
for (const { page, name } of [desktop, phone]) {
  await numbersMove(page);
  await fits(page);
  await suitsScreenReaders(page, name);
  await obeysTheKeyboard(page);
  await page.screenshot({ path: `${screenshots}/${name}.png`, fullPage: true });
  await page.locator("section", { hasText: "Most used keys" }).screenshot({ path: `${screenshots}/${name}-hot-keys.png` });
  await page.locator("section", { hasText: "With other memory limits" }).screenshot({ path: `${screenshots}/${name}-sizing.png` });
  await page.locator("#tenants-card").screenshot({ path: `${screenshots}/${name}-tenants.png` });
}
assert.ok(await brightness(desktop.page) > 200 && await brightness(phone.page) < 60, "it does not follow the colour scheme");
for (const { name, complaints } of [desktop, phone]) assert.deepEqual(complaints, [], name);

// When the server is not to be reached it says so, and recovers by itself.
await phone.context.setOffline(true);
await shows(phone.page, "that there is no answer", () => document.querySelector("#state").textContent.startsWith("No answer"));
await phone.context.setOffline(false);
await shows(phone.page, "that there are answers again", () => document.querySelector("#state").textContent === "");
isOver = true;
await loading;
await browser.close();
console.log("page: numbers, sizes, colours, keyboard and names are as they should be");
