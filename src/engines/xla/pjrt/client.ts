import { byteSize, type HostData, viewHost } from "../../../ir/dtype.js";
import { reasonOf } from "../../../ir/errors.js";
import { at, bytesOf, formatType, sizeOf, type TensorType } from "../../../ir/shape.js";
import { Pending } from "../pending.js";
import { gpuUnrolling } from "../stablehlo/unroll.js";
import type { FusedKernel } from "../stablehlo/writer.js";
import type { StoreCallbacks } from "../store/openStore.js";
import type { XlaClient, XlaMemory, XlaPlatform, XlaProgram } from "../xlaClient.js";
import { elementTypes, namedValueTypes, otherStructs, semantics } from "./apiLayout.js";
import { type ExecutableCache, WORTH_KEEPING_MS } from "./cache.js";
import { compileOptions, type XlaFlag } from "./compileOptions.js";
import { Events } from "./events.js";
import { Handle } from "./handle.js";
import { PjrtProgram } from "./pjrtProgram.js";
import type { Arguments, NativeMemory, Plugin } from "./plugin.js";

/** Options for creating a client, by the plug-in's names. */
export type ClientOptions = Readonly<Record<string, OptionValue>>;

type OptionValue = string | number | bigint | boolean | readonly bigint[];

/** How a client compiles. */
export interface PjrtCompileSettings {
  readonly flags: Readonly<Record<string, XlaFlag>>;
  readonly cache: ExecutableCache | undefined;
}

/** The first GPU generation that supports cuDNN's attention. */
const LEAST_CAPABILITY = 8;

/** Uploads up to this size are copied by the plug-in during the call. */
const SMALL_UPLOAD = 1 << 18;

/** A client of XLA that calls a PJRT plug-in. */
export class PjrtClient implements XlaClient<Handle> {
  readonly platform: XlaPlatform;
  readonly numDevices: number;
  readonly events: Events;
  private readonly client: Handle;
  readonly process: { readonly index: number; readonly count: number };
  readonly processOfDevice: readonly number[];
  private readonly devices: readonly bigint[];
  private readonly addressable: ReadonlySet<bigint>;
  /** The plug-in's ids of the devices. */
  private readonly ids: readonly number[];
  /** Our settings for compilations that this version of XLA does not have. */
  private readonly unknownFlags = new Set<string>();
  /** Programs that are being written to disk. */
  private readonly writing = new Pending();

  private constructor(
    readonly plugin: Plugin,
    client: bigint,
    private readonly settings: PjrtCompileSettings,
  ) {
    this.events = new Events(plugin);
    this.client = new Handle(client, "the client");
    this.devices = this.listed("Client_Devices");
    this.addressable = new Set(this.listed("Client_AddressableDevices"));
    this.numDevices = this.devices.length;
    const descriptions = this.devices.map((device) => this.describe(device));
    this.ids = descriptions.map((description) => this.idOf(description));
    const own = plugin.args("Client_ProcessIndex").set("client", this.client.pointer);
    const indices = descriptions.map((description) => {
      const args = plugin.args("DeviceDescription_ProcessIndex").set("description", description);
      return low32(plugin.call("DeviceDescription_ProcessIndex", args).get("index"));
    });
    this.processOfDevice = indices;
    this.process = {
      index: low32(plugin.call("Client_ProcessIndex", own).get("index")),
      count: new Set(indices).size,
    };
    this.platform = {
      name: this.textOf("Client_PlatformName", this.client.pointer),
      version: this.textOf("Client_PlatformVersion", this.client.pointer),
      deviceKind: this.textOf("DeviceDescription_Kind", at(descriptions, 0)),
      ...gpuOf(this.attributesOf(at(descriptions, 0))),
    };
  }

  /** Opens a client, which takes a quarter of a second on a GPU. */
  static open(
    plugin: Plugin,
    options: ClientOptions,
    settings: PjrtCompileSettings,
    store?: StoreCallbacks,
  ): PjrtClient {
    const made = plugin.call("Client_Create", creation(plugin, options, store));
    return new PjrtClient(plugin, made.get("client"), settings);
  }

  /** Opens a client on another thread. */
  static async openAway(
    plugin: Plugin,
    options: ClientOptions,
    settings: PjrtCompileSettings,
  ): Promise<PjrtClient> {
    const made = await plugin.callAway("Client_Create", creation(plugin, options));
    return new PjrtClient(plugin, made.get("client"), settings);
  }

  isAddressable(device: number): boolean {
    const pointer = this.devices[device];
    return pointer !== undefined && this.addressable.has(pointer);
  }

  upload(type: TensorType, data: HostData, device: number): Handle {
    const { plugin } = this;
    // The plug-in reads the elements after the call has returned, when the caller may change them, so it gets a copy.
    const source = plugin.memory(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    const isSmall = data.byteLength <= SMALL_UPLOAD;
    const args = plugin
      .args("Client_BufferFromHostBuffer")
      .set("client", this.client.pointer)
      .point("data", source)
      .set("type", elementTypes[type.dtype])
      .point("dims", plugin.words(type.shape))
      .set("numDims", type.shape.length)
      .set("semantics", isSmall ? semantics.duringCall : semantics.untilDone)
      .set("device", at(this.devices, device));
    plugin.call("Client_BufferFromHostBuffer", args);
    // A failed copy is reported to whoever reads the buffer.
    this.events.follow(args.get("done"), args);
    return new Handle(args.get("buffer"), `a buffer of ${formatType(type)}`);
  }

  async download(array: Handle, type: TensorType): Promise<HostData> {
    const { plugin } = this;
    const target = plugin.memory(bytesOf(type));
    if (sizeOf(type.shape) > 0) {
      const args = plugin
        .args("Buffer_ToHostBuffer")
        .set("buffer", array.pointer)
        .point("target", target)
        .set("size", target.bytes.length);
      plugin.call("Buffer_ToHostBuffer", args);
      await this.events.when(args.get("event"), args);
    }
    return viewHost(type.dtype, target.bytes.buffer, 0, target.bytes.length / byteSize(type.dtype));
  }

  copy(array: Handle, device: number): Handle {
    const { plugin } = this;
    const args = plugin.args("Buffer_CopyToDevice").set("buffer", array.pointer);
    plugin.call("Buffer_CopyToDevice", args.set("device", at(this.devices, device)));
    return new Handle(args.get("copy"), "a copy of a buffer");
  }

  destroy(array: Handle): void {
    this.plugin.callWith("Buffer_Destroy", "buffer", array.take());
  }

  async compile(
    text: string,
    devices: readonly number[],
    own: Readonly<Record<string, XlaFlag>> = {},
  ): Promise<XlaProgram<Handle>> {
    const { plugin, platform } = this;
    const { cache } = this.settings;
    const known = Object.entries(own).filter(([name]) => !this.unknownFlags.has(name));
    const flags = { ...Object.fromEntries(known), ...this.settings.flags };
    const ids = devices.map((device) => at(this.ids, device));
    const numOwn = devices.filter((device) => this.isAddressable(device)).length;
    const options = compileOptions(ids, flags);
    const key = cache?.key(text, options, plugin.version, platform.version, platform.deviceKind);
    const kept = key === undefined ? undefined : await cache?.read(key);
    if (kept !== undefined && key !== undefined) {
      const loaded = await this.load(kept).catch(() => cache?.drop(key));
      if (loaded !== undefined) return new PjrtProgram(this, loaded, numOwn);
    }
    const begin = performance.now();
    const loaded = await this.build(text, options).catch((error: unknown) => {
      const [, name = ""] = /No such compile option: '(\w+)'/.exec(reasonOf(error)) ?? [];
      if (!known.some(([flag]) => flag === name) || name in this.settings.flags) throw error;
      this.unknownFlags.add(name);
    });
    if (loaded === undefined) return this.compile(text, devices, own);
    const program = new PjrtProgram(this, loaded, numOwn);
    const isWorthKeeping = performance.now() - begin > WORTH_KEEPING_MS;
    if (isWorthKeeping && key !== undefined) this.keep(key, program);
    return program;
  }

  /**
   * Writes a program to disk while it is already running; if that fails, the next start merely has to compile again.
   */
  private keep(key: string, program: PjrtProgram): void {
    const { cache } = this.settings;
    this.writing.add(program.serialize().then((content) => cache?.write(key, content)));
  }

  memory(device: number): XlaMemory {
    const { plugin } = this;
    const args = plugin.args("Device_MemoryStats").set("device", at(this.devices, device));
    plugin.call("Device_MemoryStats", args);
    const limit = Number(args.get("limit"));
    return {
      used: Number(args.get("used")),
      peak: Number(args.get("peak")),
      capacity: limit > 0 ? limit : Number.POSITIVE_INFINITY,
    };
  }

  /** The plug-in keeps its devices until the process ends: reopening them takes seconds. */
  async close(): Promise<void> {
    await this.events.settled();
    await this.writing.settled();
  }

  private async build(text: string, options: Uint8Array): Promise<bigint> {
    const { plugin } = this;
    const code = plugin.text(text);
    const format = plugin.text("mlir");
    const program = plugin
      .struct("Program")
      .point("code", code)
      .set("codeSize", code.bytes.length)
      .point("format", format)
      .set("formatSize", format.bytes.length);
    const args = plugin
      .args("Client_Compile")
      .set("client", this.client.pointer)
      .point("program", program)
      .point("options", plugin.memory(options))
      .set("optionsSize", options.length);
    await plugin.callAway("Client_Compile", args);
    return args.get("executable");
  }

  private async load(content: Uint8Array): Promise<bigint> {
    const { plugin } = this;
    const data: NativeMemory = plugin.memory(content);
    const args = plugin
      .args("Executable_DeserializeAndLoad")
      .set("client", this.client.pointer)
      .point("data", data)
      .set("size", data.bytes.length);
    await plugin.callAway("Executable_DeserializeAndLoad", args);
    return args.get("executable");
  }

  private listed(name: "Client_Devices" | "Client_AddressableDevices"): bigint[] {
    const { plugin } = this;
    const args = plugin.call(name, plugin.args(name).set("client", this.client.pointer));
    return [...plugin.wordsAt(args.get("devices"), Number(args.get("count")))];
  }

  private describe(device: bigint): bigint {
    const args = this.plugin.args("Device_GetDescription").set("device", device);
    return this.plugin.call("Device_GetDescription", args).get("description");
  }

  private idOf(description: bigint): number {
    const args = this.plugin.args("DeviceDescription_Id").set("description", description);
    return low32(this.plugin.call("DeviceDescription_Id", args).get("id"));
  }

  /** The plug-in's string attributes of a device. */
  private attributesOf(description: bigint): ReadonlyMap<string, string> {
    const { plugin } = this;
    const args = plugin.args("DeviceDescription_Attributes").set("description", description);
    plugin.call("DeviceDescription_Attributes", args);
    const { bytes, name, nameSize, type, value, count } = otherStructs.NamedValue;
    const size = bytes / 8;
    const words = plugin.wordsAt(args.get("attributes"), Number(args.get("count")) * size);
    const texts = new Map<string, string>();
    for (let start = 0; start < words.length; start += size) {
      const word = (field: number) => words[start + field] ?? 0n;
      if ((word(type) & 0xffffffffn) !== BigInt(namedValueTypes.string)) continue;
      texts.set(plugin.textAt(word(name), word(nameSize)), plugin.textAt(word(value), word(count)));
    }
    return texts;
  }

  private textOf(
    name: "Client_PlatformName" | "Client_PlatformVersion" | "DeviceDescription_Kind",
    handle: bigint,
  ): string {
    const args = this.plugin.args(name).set("handle", handle);
    this.plugin.call(name, args);
    return this.plugin.textAt(args.get("text"), args.get("size"));
  }
}

/** A 32-bit number; the upper half of its word is undefined. */
const low32 = (word: bigint): number => Number(BigInt.asIntN(32, word));

/** The dedicated kernels of GPUs; other devices have no compute capability. cuDNN's attention needs Ampere or newer. */
function gpuOf(attributes: ReadonlyMap<string, string>): Pick<XlaPlatform, "kernels" | "unrolling"> {
  const capability = attributes.get("compute_capability");
  if (capability === undefined) return { kernels: [] };
  const isNew = Number.parseFloat(capability) >= LEAST_CAPABILITY;
  const ragged = ["raggedDot", "raggedAllToAll"] as const;
  const kernels: FusedKernel[] = isNew ? ["attention", ...ragged] : [...ragged];
  return { kernels, unrolling: gpuUnrolling };
}

/** The arguments that create a client. */
function creation(
  plugin: Plugin,
  options: ClientOptions,
  store?: StoreCallbacks,
): Arguments<"Client_Create"> {
  const values = Object.entries(options).map(([name, value]) => namedValue(plugin, name, value));
  // The names and strings of the options must stay alive until the call has returned.
  const list = { ...plugin.words(values.flatMap(({ words }) => words)), values };
  const args = plugin.args("Client_Create").point("options", list).set("numOptions", values.length);
  if (store) args.set("get", store.get).set("put", store.put).set("tryGet", store.tryGet);
  return args;
}

/** The seven words of an option, and the memory they point to. */
function namedValue(plugin: Plugin, name: string, value: OptionValue) {
  const nameText = plugin.text(name);
  const head = [56n, 0n, nameText.address, BigInt(nameText.bytes.length)];
  if (typeof value === "string") {
    const text = plugin.text(value);
    const words = [...head, BigInt(namedValueTypes.string), text.address, BigInt(text.bytes.length)];
    return { words, keep: [nameText, text] };
  }
  if (typeof value === "object") {
    const list = plugin.words(value);
    const words = [...head, BigInt(namedValueTypes.integers), list.address, BigInt(value.length)];
    return { words, keep: [nameText, list] };
  }
  const keep = [nameText];
  if (typeof value === "bigint") {
    return { words: [...head, BigInt(namedValueTypes.integer), BigInt.asUintN(64, value), 1n], keep };
  }
  if (typeof value === "boolean") {
    return { words: [...head, BigInt(namedValueTypes.boolean), value ? 1n : 0n, 1n], keep };
  }
  const bits = BigInt(new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0);
  return { words: [...head, BigInt(namedValueTypes.float), bits, 1n], keep };
}
