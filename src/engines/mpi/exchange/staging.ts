import type { CompiledProgram } from "../../../compiler/steps.js";
import { forEachStep } from "../../../compiler/stepTree.js";
import { at } from "../../../ir/shape.js";
import { groupOf, planStaging, type Staging } from "../../collectives/collectives.js";
import { roundUp } from "../../memory/heap.js";
import type { DeviceLocations } from "../../protocol/locations.js";
import { MpiGroup, stagingBytes } from "../library/mpiGroup.js";

/** From which step to which a collective is under way; steps are numbered as they are listed. */
interface Span {
  readonly begin: number;
  readonly end: number;
}

interface Piece extends Span {
  readonly offset: number;
  readonly bytes: number;
}

/**
 * Where the collectives of a program set bytes aside at one position of its mesh. Those inside the process keep
 * their two copies for good; those that reach other processes share memory with others that are under way at other
 * times.
 */
export function planExchanges(
  program: CompiledProgram,
  position: number,
  locations: DeviceLocations,
  crowded: boolean,
): Staging {
  const { collectives } = program;
  const isHere = (member: number) => at(locations.processes, member) === locations.process;
  const isInside = collectives.map((spec) => groupOf(spec, position).every(isHere));
  const inside = planStaging(collectives, crowded);
  const spans = spansOf(program);
  const placed: Piece[] = [];
  let bytes = inside.bytes;
  const offsets = collectives.map((spec, i) => {
    if (isInside[i]) return inside.offsets[i];
    const size = stagingBytes(spec, new MpiGroup(groupOf(spec, position), position, locations), locations);
    const piece = findPlace(at(spans, i), roundUp(size), placed, inside.bytes);
    placed.push(piece);
    bytes = Math.max(bytes, piece.offset + piece.bytes);
    return piece.offset;
  });
  return { bytes, offsets };
}

/** The lowest place that is free while a collective is under way. */
function findPlace(span: Span, bytes: number, placed: readonly Piece[], base: number): Piece {
  const together = placed
    .filter(({ begin, end }) => begin <= span.end && span.begin <= end)
    .sort((a, b) => a.offset - b.offset);
  let offset = base;
  for (const piece of together) {
    if (offset + bytes <= piece.offset) break;
    offset = Math.max(offset, piece.offset + piece.bytes);
  }
  return { ...span, offset, bytes };
}

/**
 * When each collective is under way. One that ends before it begins, in the order of the list, continues from
 * one iteration of a loop to the next, and one that begins or ends twice is in several branches: both count as under
 * way all the time.
 */
function spansOf({ steps, collectives }: CompiledProgram): Span[] {
  const begins: number[][] = collectives.map(() => []);
  const ends: number[][] = collectives.map(() => []);
  let index = 0;
  forEachStep(steps, (step) => {
    if (step.op === "start") at(begins, step.collective).push(index);
    if (step.op === "done") at(ends, step.collective).push(index);
    index++;
  });
  return collectives.map((_, i) => {
    const [[begin, ...more], [end, ...others]] = [at(begins, i), at(ends, i)];
    const isPlain = begin !== undefined && end !== undefined && more.length + others.length === 0;
    return isPlain && begin <= end ? { begin, end } : { begin: 0, end: index };
  });
}
