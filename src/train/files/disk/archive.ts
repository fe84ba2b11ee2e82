/** Archives of files in the format of `tar`, which every system unpacks. */
import { FileError } from "./fileError.js";

const blockBytes = 512;

/** Where the fields of a header are, and how long each is. */
const fields = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  modified: [136, 12],
  checksum: [148, 8],
  kind: [156, 1],
  magic: [257, 8],
  prefix: [345, 155],
} as const;

const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits - 1, "0")}\0`;

/** A path as its last names and those before them, each as long as a header has room for. */
function splitPath(path: string): { readonly name: string; readonly prefix: string } {
  const encoded = (text: string) => new TextEncoder().encode(text).length;
  if (encoded(path) <= fields.name[1]) return { name: path, prefix: "" };
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)];
    if (encoded(name) <= fields.name[1] && encoded(prefix) <= fields.prefix[1]) return { name, prefix };
  }
  throw new FileError("archive", path, 0, "its path is too long for an archive");
}

/** The header of a file. */
function header(path: string, size: number): Uint8Array {
  const block = new Uint8Array(blockBytes);
  const put = (field: keyof typeof fields, text: string) => {
    block.set(new TextEncoder().encode(text).subarray(0, fields[field][1]), fields[field][0]);
  };
  const { name, prefix } = splitPath(path);
  put("name", name);
  put("prefix", prefix);
  put("mode", octal(0o644, 8));
  put("uid", octal(0, 8));
  put("gid", octal(0, 8));
  put("size", octal(size, 12));
  put("modified", octal(0, 12));
  put("kind", "0");
  put("magic", "ustar\x0000");
  // The sum of all bytes, those of the checksum itself taken as spaces.
  put("checksum", " ".repeat(8));
  put(
    "checksum",
    `${octal(
      block.reduce((sum, byte) => sum + byte, 0),
      7,
    )} `,
  );
  return block;
}

/** The archive of some files, compressed with gzip, as a stream. @param files their paths, sizes and contents */
export function archive(
  files: AsyncIterable<readonly [path: string, content: Uint8Array]>,
): ReadableStream<Uint8Array> {
  const blocks = blocksOf(files);
  const whole = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const { done, value } = await blocks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  return whole.pipeThrough(new CompressionStream("gzip"));
}

async function* blocksOf(
  files: AsyncIterable<readonly [path: string, content: Uint8Array]>,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  for await (const [path, content] of files) {
    yield header(path, content.length).slice();
    yield content.slice();
    yield new Uint8Array((blockBytes - (content.length % blockBytes)) % blockBytes);
  }
  yield new Uint8Array(2 * blockBytes);
}
