/** Stands in for compiling modules: each is compiled once for all processes of all clusters. */
const modules = new Map<string, WebAssembly.Module>();

export function enableRelaxedSimd(): void {}

export function compileWasmModule(bytes: Uint8Array<ArrayBuffer>): WebAssembly.Module {
  const key = Buffer.from(bytes).toString("latin1");
  const made = modules.get(key) ?? new WebAssembly.Module(bytes);
  modules.set(key, made);
  return made;
}
