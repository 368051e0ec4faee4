// Sessions by memjs (the binary protocol) and memcached (text). The folder with both is the second argument.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { promisify } from "node:util";

const [port, folder] = process.argv.slice(2);
const require = createRequire(folder + "/");

// By default memjs waits for half a second, and the machine may be busy.
async function memjs() {
  const client = require("memjs").Client.create(`127.0.0.1:${port}`, { timeout: 60 });
  await client.flush();
  assert.equal(await client.set("key", "value", { expires: 100 }), true);
  assert.equal((await client.get("key")).value.toString(), "value");
  assert.equal((await client.get("absent")).value, null);
  assert.equal(await client.add("key", "other", {}), false);
  assert.equal(await client.replace("key", "other", {}), true);
  assert.equal(await client.append("key", "+"), true);
  assert.equal((await client.get("key")).value.toString(), "other+");
  assert.equal((await client.increment("number", 5, { initial: 10 })).value, 10);
  assert.equal((await client.increment("number", 5, {})).value, 15);
  const big = Buffer.alloc(1000000, 7);
  assert.equal(await client.set("big", big, {}), true);
  assert.ok((await client.get("big")).value.equals(big));
  assert.equal(await client.delete("key"), true);
  assert.equal(await client.delete("key"), false);
  client.close();
  console.log("memjs: all as expected");
}

async function memcached() {
  const client = new (require("memcached"))(`127.0.0.1:${port}`);
  const call = (name, ...args) => promisify(client[name]).apply(client, args);
  assert.equal(await call("set", "key", "value", 100), true);
  assert.equal(await call("get", "key"), "value");
  assert.equal(await call("get", "absent"), undefined);
  await assert.rejects(call("add", "key", "other", 100));
  assert.equal(await call("append", "key", "+"), true);
  const { key, cas } = await call("gets", "key");
  assert.equal(key, "value+");
  assert.equal(await call("cas", "key", "swapped", cas, 100), true);
  assert.equal(await call("set", "number", 10, 100), true);
  assert.equal(await call("incr", "number", 5), 15);
  assert.equal(await call("decr", "number", 20), 0);
  assert.deepEqual(await call("getMulti", ["key", "absent"]), { key: "swapped" });
  assert.equal(await call("touch", "key", 100), true);
  assert.equal(await call("del", "key"), true);
  assert.equal((await call("stats"))[0].version, "1.6.45");
  client.end();
  console.log("memcached (npm): all as expected");
}

await memjs();
await memcached();
