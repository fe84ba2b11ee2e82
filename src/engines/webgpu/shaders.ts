import { BINDING, MAX_PARAMS } from "../../compiler/wgsl/shaderMemory.js";
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

/** Compiles shaders, each text once. */
export class Shaders {
  private readonly pipelines = new Map<string, GPUComputePipeline>();
  private readonly layouts = new Map<string, GPUBindGroupLayout>();

  /** @param watch tells the engine what a shader's compiler says, which arrives later */
  constructor(
    private readonly gpu: Gpu,
    private readonly watch: (errors: Promise<GPUError | null>, what: string) => void,
  ) {}

  /** The compiled form of a shader. @param what it computes, for messages */
  pipeline(code: string, numSlabs: number, writesTable: boolean, what: string): GPUComputePipeline {
    return getOrInsert(this.pipelines, code, () => {
      const { device } = this.gpu;
      device.pushErrorScope("validation");
      const module = device.createShaderModule({ code, label: what });
      const layout = device.createPipelineLayout({ bindGroupLayouts: [this.layout(numSlabs, writesTable)] });
      // A shader may only be given the constants that it has.
      const constants = constantsOf(code, this.gpu.facts);
      const compute = { module, entryPoint: "main", constants };
      const pipeline = device.createComputePipeline({ layout, compute, label: what });
      this.watch(device.popErrorScope(), what);
      return pipeline;
    });
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

  private layout(numSlabs: number, writesTable: boolean): GPUBindGroupLayout {
    const key = `${numSlabs} ${writesTable}`;
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
          ...range(numSlabs).map((i) => ({ ...storage, binding: BINDING.slabs + i })),
        ],
      });
      this.layouts.set(key, layout);
    }
    return layout;
  }
}
