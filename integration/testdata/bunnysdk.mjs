// What Bunny's own client makes of our fake of Bunny. Every line but "ok" is a difference.
import * as bunny from "@bunny.net/storage-sdk";

const fake = new URL(process.env.BUNNY);
const real = globalThis.fetch;
globalThis.fetch = (at, options) => {
  const url = new URL(at);
  url.protocol = fake.protocol;
  url.host = fake.host;
  return real(url, options);
};

const body = (text) => new Response(text).body;
const sum = "2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824"; // of hello
const zone = bunny.zone.connect_with_accesskey(bunny.regions.StorageRegion.Falkenstein, "zone", process.env.BUNNY_KEY);
const want = (what, got, wanted) => {
  const a = JSON.stringify(got), b = JSON.stringify(wanted);
  if (a !== b) console.log(`${what}: ${a}, want ${b}`);
};
const refusal = async (call) => { try { await call(); return "none"; } catch (e) { return e.message; } };

want("upload", await bunny.file.upload(zone, "dir/a.txt", body("hello"), { contentType: "text/plain", sha256Checksum: sum }), true);
want("upload with a wrong checksum", (await refusal(() => bunny.file.upload(zone, "dir/b.txt", body("hello"), { sha256Checksum: "AA" }))).includes("checksum"), true);
const got = await bunny.file.get(zone, "dir/a.txt");
want("get", [got.length, got.checksum, got.contentType, got.isDirectory], [5, sum, "text/plain", false]);
want("list", (await bunny.file.list(zone, "dir")).map((f) => f.objectName), ["a.txt"]);
want("list of the top", (await bunny.file.list(zone, "")).map((f) => [f.objectName, f.isDirectory]), [["dir", true]]);
const down = await bunny.file.download(zone, "dir/a.txt");
want("download", [await down.response.text(), down.length], ["hello", 5]);
want("download of nothing", await refusal(() => bunny.file.download(zone, "none")), "File not found: none");
want("remove", [await bunny.file.remove(zone, "dir/a.txt"), await bunny.file.remove(zone, "dir/a.txt")], [true, false]);
want("remove of a folder", await bunny.file.removeDirectory(zone, "dir"), true);
const stranger = bunny.zone.connect_with_accesskey(bunny.regions.StorageRegion.Falkenstein, "zone", "wrong");
want("a wrong key", (await refusal(() => bunny.file.list(stranger, ""))).startsWith("Unauthorized"), true);
console.log("ok");
