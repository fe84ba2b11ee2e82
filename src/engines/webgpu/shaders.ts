import { MAX_PARAMS } from "../../compiler/wgsl/shaderMemory.js";
import { BINDING } from "../../compiler/wgsl/shaderSlabs.js";
import { getOrInsert } from "../../ir/collections.js";
import { range } from "../../ir/shape.js";
import { COMPUTE_STAGE, constantsOf, type Gpu } from "./gpu.js";

/** What a shader is bound to besides the slabs. */
export interface ProgramBuffers {
  readonly params: GPUBuffer;
  readonly table: GPUBuffer;
}

/** Bytes of the parameters that a shader can see. */
export const PARAMS_BYTES = 4 * MAX_PARAMS;

/** A shader: its text, and what decides its layout. */
export interface Shader {
  readonly code: string;
  readonly numBuffers: number;
  readonly writesTable: boolean;
  /** What it computes, for messages. */
  readonly what: string;
}

/** Compiles shaders, each text once. */
export class Shaders {
  private readonly pipelines = new Map<string, GPUComputePipeline>();
  private readonly compiling = new Map<string, Promise<void>>();
  private readonly layouts = new Map<string, GPUBindGroupLayout>();

  /** @param watch tells the engine what a shader's compiler says, which arrives later */
  constructor(
    private readonly gpu: Gpu,
    private readonly watch: (errors: Promise<GPUError | null>, what: string) => void,
  ) {}

  /** The compiled form of a shader; one that was not compiled before is compiled now, which takes the caller's time. */
  pipeline(shader: Shader): GPUComputePipeline {
    return getOrInsert(this.pipelines, shader.code, () => {
      const { device } = this.gpu;
      device.pushErrorScope("validation");
      const pipeline = device.createComputePipeline(this.describe(shader));
      this.watch(device.popErrorScope(), shader.what);
      return pipeline;
    });
  }

  /** Compiles a shader beside others, on the threads of the driver; nothing where that has been done. */
  compile(shader: Shader): Promise<void> | undefined {
    const { code, what } = shader;
    if (this.pipelines.has(code)) return undefined;
    return getOrInsert(this.compiling, code, () => {
      const { device } = this.gpu;
      device.pushErrorScope("validation");
      const made = device.createComputePipelineAsync(this.describe(shader));
      const errors = device.popErrorScope();
      const refused = made.then(
        (pipeline) => {
          this.pipelines.set(code, pipeline);
          return null;
        },
        (error: GPUError) => error,
      );
      // The scope has what is wrong with the text, the pipeline only that something is.
      this.watch(
        Promise.all([errors, refused]).then(([first, second]) => first ?? second),
        what,
      );
      return refused.then(() => {
        this.compiling.delete(code);
      });
    });
  }

  private describe({ code, numBuffers, writesTable, what }: Shader): GPUComputePipelineDescriptor {
    const { device, facts } = this.gpu;
    const module = device.createShaderModule({ code, label: what });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [this.layout(numBuffers, writesTable)] });
    // A shader may only be given the constants that it has.
    const compute = { module, entryPoint: "main", constants: constantsOf(code, facts) };
    return { layout, compute, label: what };
  }

  /** The buffers of a shader. */
  bindGroup(
    { params, table }: ProgramBuffers,
    slabs: readonly GPUBuffer[],
    writesTable: boolean,
  ): GPUBindGroup {
    return this.gpu.device.createBindGroup({
      layout: this.layout(slabs.length, writesTable),
      entries: [
        { binding: BINDING.params, resource: { buffer: params, size: PARAMS_BYTES } },
        { binding: BINDING.table, resource: { buffer: table } },
        ...slabs.map((buffer, i) => ({ binding: BINDING.slabs + i, resource: { buffer } })),
      ],
    });
  }

  private layout(numBuffers: number, writesTable: boolean): GPUBindGroupLayout {
    const key = `${numBuffers} ${writesTable}`;
    let layout = this.layouts.get(key);
    if (layout === undefined) {
      const visibility = COMPUTE_STAGE;
      const storage = { binding: 0, visibility, buffer: { type: "storage" } } as const;
      layout = this.gpu.device.createBindGroupLayout({
        entries: [
          { binding: BINDING.params, visibility, buffer: { type: "uniform", hasDynamicOffset: true } },
          {
            ...storage,
            binding: BINDING.table,
            buffer: { type: writesTable ? "storage" : "read-only-storage" },
          },
          ...range(numBuffers).map((i) => ({ ...storage, binding: BINDING.slabs + i })),
        ],
      });
      this.layouts.set(key, layout);
    }
    return layout;
  }
}
