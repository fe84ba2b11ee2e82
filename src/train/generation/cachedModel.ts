/** A model that reads several texts at once, and remembers what it has read of each. */
import { getOrInsert } from "../../ir/collections.js";
import type { Engine } from "../../ir/engine.js";
import { ValueError } from "../../ir/errors.js";
import { Recent } from "../../ir/recent.js";
import { at, range } from "../../ir/shape.js";
import { unbox } from "../../nn/modules/metadata.js";
import type { Variables } from "../../nn/modules/scope.js";
import * as np from "../../numpy/index.js";
import * as random from "../../random/index.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding, shardingOf } from "../../spmd/mesh/sharding.js";
import { jit } from "../../spmd/run/jit.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { isRecurrent, type ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { LONGEST } from "../models/matrixMemory.js";
import { batchAxes, inMeshContext, languageModelRules } from "../models/names.js";
import { pageSize, type Reading } from "../models/reading.js";
import { Drawer } from "./drawing.js";

/** Numbers of tokens that are read at once; programs are compiled for these alone. */
const chunkSizes = [1, 16, 128, 512] as const;
const recurrentSizes = chunkSizes.filter((size) => size <= LONGEST);

/** How a model is used for generation. */
export interface CachedModelOptions {
  /** How many texts are read at once; rounded up to a multiple of the devices that rows are split over. */
  readonly slots: number;
  /** Maximum number of tokens of a text. */
  readonly maxLength: number;
  /** The mesh to run on; that of the parameters by default, or else one device. */
  readonly mesh?: Mesh | undefined;
}

/** Reads tokens: the functions that are compiled. */
interface Functions {
  /** Logits [rows, vocabulary] after the `last` of tokens [rows, length]. */
  read(
    params: Variables,
    cache: Variables,
    tokens: Tensor,
    reading: Reading,
    last: Tensor,
  ): [Tensor, Variables];
  /** Logits [rows * length, vocabulary] after each of the tokens. */
  readAll(params: Variables, cache: Variables, tokens: Tensor, reading: Reading): [Tensor, Variables];
  /** The same for one token of every row, by a recurrent model. */
  next(params: Variables, cache: Variables, tokens: Tensor): [Tensor, Variables];
  /** The same for some rows; the others keep their states. */
  nextOfSome(params: Variables, cache: Variables, tokens: Tensor, isActive: Tensor): [Tensor, Variables];
  /** Empties the states of some rows of a recurrent model. */
  reset(cache: Variables, isFresh: Tensor): Variables;
  empty(): Variables;
  readonly drawer: Drawer;
}

/** A model with one slot for each text that it reads. */
export class CachedModel {
  readonly slots: number;
  readonly maxLength: number;
  private readonly isRecurrent: boolean;
  /** Rows of tokens are split over this many devices. */
  private readonly rowsTogether: number;
  private readonly functions: Functions;
  /** Draws tokens where logits are. */
  readonly drawer: Drawer;
  private readonly params: Variables | Promise<Variables>;
  private readonly givenParams: Variables;
  private cache: Variables | undefined;
  /** The pages of each slot, and the number of tokens that it has read. */
  private readonly pages: number[][];
  private readonly lengths: number[];
  private readonly freePages: number[];

  constructor(model: ModelConfig, given: Variables, { slots, maxLength, mesh }: CachedModelOptions) {
    // The names in boxes are those of another mesh, or of none.
    const params = unbox<Variables>(given);
    const own = mesh ?? meshOf(params) ?? Mesh.create({ data: 1 });
    this.rowsTogether = batchAxes(own.axisNames).reduce((count, axis) => count * (own.shape[axis] ?? 1), 1);
    this.slots = Math.ceil(slots / this.rowsTogether) * this.rowsTogether;
    const numPages = this.slots * Math.ceil(maxLength / pageSize);
    this.maxLength = maxLength;
    this.isRecurrent = isRecurrent(model);
    this.functions = functionsOf({ ...model, cacheLength: numPages * pageSize }, own, this.slots);
    this.drawer = this.functions.drawer;
    this.givenParams = params;
    this.params = meshOf(params) === own ? params : devicePut(params, everywhere(own));
    this.pages = range(this.slots).map(() => []);
    this.lengths = range(this.slots).map(() => 0);
    this.freePages = range(numPages).reverse();
  }

  /** Empties a slot. */
  forget(slot: number): void {
    this.freePages.push(...at(this.pages, slot).splice(0));
    this.lengths[slot] = 0;
  }

  /** Forgets the last tokens of a slot; not for recurrent models. */
  forgetLast(slot: number, count: number): void {
    this.lengths[slot] = at(this.lengths, slot) - count;
  }

  /**
   * Reads at most `size` more tokens of some slots at once. Not for recurrent models.
   *
   * @returns logits after the last of them, [slots, vocabulary], or after each of `size`, [slots * size, vocabulary]
   */
  async readTogether(
    tokens: ReadonlyMap<number, readonly number[]>,
    size: number,
    which: "last" | "all",
  ): Promise<Tensor> {
    for (const [slot, { length }] of tokens) this.needSpace(slot, length);
    const rows = range(this.slots).map((slot) => ({ slot, tokens: tokens.get(slot) ?? [] }));
    return this.readRows(rows, this.slots, size, which);
  }

  /** Reads more of a slot's text; returns logits after its last token, in one of the rows. */
  async read(
    slot: number,
    tokens: readonly number[],
  ): Promise<{ readonly logits: Tensor; readonly row: number }> {
    this.needSpace(slot, tokens.length);
    const sizes = this.isRecurrent ? recurrentSizes : chunkSizes;
    // States are rows of one tensor, so that a recurrent model reads all rows, the others of which are empty.
    const row = this.isRecurrent ? slot : 0;
    for (let start = 0; ; ) {
      const size = sizes.find((n) => n >= tokens.length - start) ?? Math.max(...sizes);
      const chunk = tokens.slice(start, start + size);
      const logits = await (this.isRecurrent
        ? this.readOfRecurrent(slot, chunk, size)
        : this.readRows([{ slot, tokens: chunk }], this.rowsTogether, size));
      start += size;
      if (start >= tokens.length) return { logits, row };
      logits.dispose();
    }
  }

  /**
   * Reads one more token of some slots; returns the logits after it, [slots, vocabulary].
   *
   * @param tokens of all slots, int32 [slots, 1]; they may be results of the step before, which need not have ended
   */
  async next(slots: readonly number[], tokens: Tensor): Promise<Tensor> {
    for (const slot of slots) this.needSpace(slot, 1);
    if (this.isRecurrent) return this.nextOfRecurrent(new Set(slots), tokens);
    const rows = range(this.slots).map((slot) => ({ slot, tokens: slots.includes(slot) ? [0] : [] }));
    return this.readRows(rows, this.slots, 1, "last", tokens);
  }

  /** One token for each slot, int32 [slots, 1]. */
  oneEach(tokens: ReadonlyMap<number, number>): Tensor {
    const ids = Int32Array.from(range(this.slots), (slot) => tokens.get(slot) ?? 0);
    return int([this.slots, 1], ids);
  }

  /** Releases the cache and what was placed on devices. */
  async close(): Promise<void> {
    tree.dispose(this.cache);
    this.cache = undefined;
    // Tensors that were there already belong to the caller.
    tree.dispose(await this.params, this.givenParams);
  }

  private needSpace(slot: number, count: number): void {
    const length = at(this.lengths, slot) + count;
    if (length <= this.maxLength) return;
    throw new ValueError(
      `[generate] a text of ${length} tokens is longer than maxLength ${this.maxLength}: use a larger maxLength`,
    );
  }

  /**
   * Reads a chunk of each row's text.
   *
   * @param size of the chunk, which shorter ones are padded to
   * @param given the tokens, if only devices know them; those of rows then say how many there are
   */
  private async readRows(
    rows: readonly { readonly slot: number; readonly tokens: readonly number[] }[],
    numRows: number,
    size: number,
    which: "last" | "all" = "last",
    given?: Tensor,
  ): Promise<Tensor> {
    const ids = new Int32Array(numRows * size);
    const positions = new Int32Array(numRows * size).fill(-1);
    const last = new Int32Array(numRows);
    rows.forEach(({ slot, tokens }, row) => {
      const length = at(this.lengths, slot);
      tokens.forEach((token, i) => {
        ids[row * size + i] = token;
        positions[row * size + i] = length + i;
      });
      last[row] = Math.max(0, tokens.length - 1);
      this.lengths[slot] = length + tokens.length;
      const pages = at(this.pages, slot);
      while (pages.length * pageSize < length + tokens.length) pages.push(this.freePages.pop() ?? 0);
    });
    // Few different numbers of pages, so that few programs are compiled.
    const used = Math.max(1, ...rows.map(({ slot }) => at(this.pages, slot).length));
    const numPages = Math.min(2 ** Math.ceil(Math.log2(used)), Math.ceil(this.maxLength / pageSize));
    const pages = new Int32Array(numRows * numPages);
    rows.forEach(({ slot }, row) => {
      pages.set(at(this.pages, slot), row * numPages);
    });
    const read = [
      await this.params,
      this.cache ?? this.functions.empty(),
      given ?? int([numRows, size], ids),
      { positions: int([numRows, size], positions), pages: int([numRows, numPages], pages) },
    ] as const;
    const [logits, cache] =
      which === "all" ? this.functions.readAll(...read) : this.functions.read(...read, int([numRows], last));
    this.cache = cache;
    return logits;
  }

  /** Reads a chunk of a slot's text by a recurrent model; the other rows are padding, which keeps their states. */
  private async readOfRecurrent(slot: number, tokens: readonly number[], size: number): Promise<Tensor> {
    if (size === 1) {
      return this.nextOfRecurrent(new Set([slot]), this.oneEach(new Map([[slot, tokens[0] ?? 0]])));
    }
    const length = at(this.lengths, slot);
    const ids = new Int32Array(this.slots * size);
    const positions = new Int32Array(this.slots * size).fill(-1);
    ids.set(tokens, slot * size);
    positions.set(
      tokens.map((_, i) => length + i),
      slot * size,
    );
    const last = new Int32Array(this.slots).fill(tokens.length - 1);
    const { empty, reset, read } = this.functions;
    const before =
      this.cache && length === 0
        ? reset(
            this.cache,
            this.flags((other) => other === slot),
          )
        : this.cache;
    const [logits, cache] = read(
      await this.params,
      before ?? empty(),
      int([this.slots, size], ids),
      { positions: int([this.slots, size], positions) },
      int([this.slots], last),
    );
    this.lengths[slot] = length + tokens.length;
    this.cache = cache;
    return logits;
  }

  /** A flag for each slot. */
  private flags(of: (slot: number) => boolean): Tensor {
    const flags = Uint8Array.from(range(this.slots), (slot) => Number(of(slot)));
    return Tensor.fromHost({ dtype: "bool", shape: [this.slots] }, flags);
  }

  /** Reads one more token of some slots by a recurrent model. @param read the tokens of all slots, int32 [slots, 1] */
  private async nextOfRecurrent(tokens: ReadonlySet<number>, read: Tensor): Promise<Tensor> {
    const slots = range(this.slots);
    const isFresh = (slot: number) => tokens.has(slot) && this.lengths[slot] === 0;
    const { empty, reset, next, nextOfSome } = this.functions;
    const params = await this.params;
    const before = this.cache && slots.some(isFresh) ? reset(this.cache, this.flags(isFresh)) : this.cache;
    // States of empty slots may change, so that states are rarely copied.
    const isAll = slots.every((slot) => tokens.has(slot) || this.lengths[slot] === 0);
    const [logits, cache] = isAll
      ? next(params, before ?? empty(), read)
      : nextOfSome(
          params,
          before ?? empty(),
          read,
          this.flags((slot) => tokens.has(slot)),
        );
    for (const slot of tokens) this.lengths[slot] = at(this.lengths, slot) + 1;
    this.cache = cache;
    return logits;
  }
}

const int = (shape: readonly number[], data: Int32Array): Tensor =>
  Tensor.fromHost({ dtype: "int32", shape }, data);

const everywhere = (mesh: Mesh) => new NamedSharding(mesh, new PartitionSpec([]));

/** The mesh of a tree's tensors, if they are on one. */
function meshOf(params: Variables): Mesh | undefined {
  for (const leaf of tree.leaves(params)) {
    const sharding = leaf instanceof Tensor ? shardingOf(leaf) : undefined;
    if (sharding instanceof NamedSharding) return sharding.mesh;
  }
  return undefined;
}

/** Recently compiled functions by engine: texts that are written one after the other need the same ones. */
const recently = new WeakMap<Engine, Recent<Functions>>();

/** Maximum number of entries to cache; each keeps its compiled programs on its devices. */
const maxModels = 4;

function functionsOf(config: ModelConfig, mesh: Mesh, slots: number): Functions {
  const { engine, axes, deviceIds } = mesh;
  const recent = getOrInsert(recently, engine, () => new Recent<Functions>(maxModels));
  return recent.get(JSON.stringify([config, slots, axes, deviceIds]), () => compiled(config, mesh, slots));
}

function compiled(config: ModelConfig, mesh: Mesh, slots: number): Functions {
  const network = LanguageModel(config);
  const changing = network.with({ mutable: ["cache"] });
  const inContext = inMeshContext(mesh, languageModelRules("sync", mesh.axisNames));
  const initial = (): Variables => {
    const { cache = {} } = network.init(random.key(0), ops.zeros({ dtype: "int32", shape: [slots, 1] }));
    return { cache };
  };
  const placed = { mesh, outShardings: [everywhere(mesh), null] } as const;
  const rowsOf = (logits: Tensor) => np.squeeze(logits, 1).astype("float32");
  const next = (params: Variables, cache: Variables, tokens: Tensor): [Tensor, Variables] => {
    const [logits, changed] = changing.apply({ ...params, ...cache }, tokens);
    return [rowsOf(logits), changed];
  };
  return {
    drawer: new Drawer(mesh),
    empty: jit(inContext(initial), { mesh, name: "emptyCache" }),
    read: jit(
      inContext((params: Variables, cache: Variables, tokens: Tensor, reading: Reading, last: Tensor) => {
        const [logits, changed] = changing.apply({ ...params, ...cache }, tokens, reading, last);
        return [rowsOf(logits), changed] as [Tensor, Variables];
      }),
      { ...placed, donate: 1, name: "readTokens" },
    ),
    readAll: jit(
      inContext((params: Variables, cache: Variables, tokens: Tensor, reading: Reading) => {
        const [logits, changed] = changing.apply({ ...params, ...cache }, tokens, reading);
        const rows = logits.reshape([-1, logits.shape.at(-1) ?? 0]);
        return [rows.astype("float32"), changed] as [Tensor, Variables];
      }),
      { ...placed, donate: 1, name: "readAllTokens" },
    ),
    next: jit(inContext(next), { ...placed, donate: 1, name: "nextTokens" }),
    nextOfSome: jit(
      inContext((params: Variables, cache: Variables, tokens: Tensor, isActive: Tensor) => {
        const [logits, changed] = next(params, cache, tokens);
        return [logits, chooseRows(isActive, changed, cache)] as [Tensor, Variables];
      }),
      { ...placed, donate: 1, name: "nextTokensOfSome" },
    ),
    reset: jit(
      inContext((cache: Variables, isFresh: Tensor) => chooseRows(isFresh, initial(), cache)),
      { mesh, donate: 0, name: "resetCache" },
    ),
  };
}

/** Chooses rows of states, which are [layers, rows, …]. */
function chooseRows(where: Tensor, a: Variables, b: Variables): Variables {
  const choose = (x: Tensor, y: Tensor) =>
    np.where(where.reshape([1, ...where.shape, ...range(x.ndim - 2).map(() => 1)]), x, y);
  return tree.map(choose, a, b);
}
