/**
 * Shaders without subgroup matrices and float16, for adapters that have neither. A factor becomes its place in shared
 * memory, and of 8 × 8 sums each of 16 threads holds four neighbours.
 */
import type { MatrixSetting } from "../../src/compiler/wgsl/matrixTile.js";

/** The matrices that are emulated. */
export const emulated: MatrixSetting = { unit: { m: 8, n: 8, k: 8 }, subgroupSize: 16 };

/** The same shader for any adapter; places in shared memory count as they do for matrices. */
export function withoutMatrices(code: string): string {
  const inVectors = code.includes("tile_a: array<vec4<u32>");
  const read = (name: string) => `fn read_${name}(matrix: vec3<u32>, row: u32, column: u32) -> f32 {
  let line = matrix.x + matrix.y * select(row, column, matrix.z == 1u);
  let item = select(column, row, matrix.z == 1u);
  return ${inVectors ? `unpack2x16float(tile_${name}[line][item / 2u])[item % 2u]` : `tile_${name}[line + item]`};
}`;
  const place = "start + lane / 2u * stride + lane % 2u";
  const functions = `var<private> lane: u32;
${read("a")}
${read("b")}
fn multiply(a: vec3<u32>, b: vec3<u32>, sum: vec4<f32>) -> vec4<f32> {
  var result = sum;
  for (var d = 0u; d < 8u; d++) {
    let left = read_a(a, lane / 2u, d);
    for (var c = 0u; c < 4u; c++) { result[c] += left * read_b(b, d, lane % 2u * 4u + c); }
  }
  return result;
}
fn store(start: u32, sum: vec4<f32>, stride: u32) {
  ${
    inVectors
      ? `sums[${place}] = sum;`
      : `for (var c = 0u; c < 4u; c++) { sums[${place} * 4u + c] = sum[c]; }`
  }
}`;
  return code
    .replace(/^(enable|diagnostic).*$/gm, "")
    .replace("@compute", `${functions}\n@compute`)
    .replace(/, @builtin\(subgroup(_invocation)?_id\) \w+: u32/g, "")
    .replace(
      /(fn main\(.*\) \{)/,
      `$1
  lane = local_invocation_index % 16u;
  let subgroup_id = local_invocation_index / 16u;
  let subgroup_invocation_id = lane;`,
    )
    .replace(
      /subgroupMatrixLoad<[^>]*>, (row|col)_major>\(&tile_[ab], (.*?), (\d+)u\)/g,
      (_, order, start, stride) => `vec3<u32>(${start}, ${stride}u, ${order === "row" ? 0 : 1}u)`,
    )
    .replaceAll("subgroupMatrixMultiplyAccumulate", "multiply")
    .replaceAll("subgroupMatrixStore<row_major>(&sums, ", "store(")
    .replaceAll(/subgroup_matrix_result<f32, \d+, \d+>\(\)/g, "vec4<f32>(0.0)")
    .replaceAll("bitcast<vec2<f16>>", "unpack2x16float")
    .replaceAll("f16", "f32");
}
