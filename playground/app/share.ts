/** Programs in URLs: deflated, in the letters that URLs take. */

const through = (bytes: Uint8Array<ArrayBuffer>, stream: CompressionStream | DecompressionStream) =>
  new Response(new Blob([bytes]).stream().pipeThrough(stream));

/** The text of a program for a URL. */
export async function pack(text: string): Promise<string> {
  const deflated = through(new TextEncoder().encode(text), new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await deflated.arrayBuffer());
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** More text than this is no program that somebody wrote. */
const MAX_CHARACTERS = 200_000;

/** The program in a URL; throws where there is none. */
export async function unpack(packed: string): Promise<string> {
  const binary = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
  const reader = through(bytes, new DecompressionStream("deflate-raw"))
    .body?.pipeThrough(new TextDecoderStream())
    .getReader();
  let text = "";
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: "" };
    if (done) return text;
    text += value;
    if (text.length > MAX_CHARACTERS) {
      await reader?.cancel();
      throw new Error("the program in this link is too long");
    }
  }
}
