import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Block, Heap } from "./heap.js";

describe("the heap", () => {
  test("takes the smallest free block that fits", () => {
    const heap = new Heap(0, 64 * 100);
    const take = (bytes: number): Block => {
      const block = heap.allocate(bytes);
      if (block === undefined) throw new Error("no room");
      return block;
    };
    const large = take(640);
    take(64);
    const small = take(128);
    take(64);
    heap.release(large, 0);
    heap.release(small, 0);
    expect(take(100).address).toBe(small.address);
    expect(take(100).address).toBe(large.address);
  });

  test("gives blocks that are still in use only to later commands", () => {
    const heap = new Heap(0, 128);
    const [a, b] = [heap.allocate(64), heap.allocate(64)];
    if (a === undefined || b === undefined) throw new Error("no room");
    heap.release(a, 5);
    expect(heap.allocate(64, 4)).toBeUndefined();
    heap.release(b, 0);
    expect(heap.allocate(64, 4)).toBeUndefined();
    expect(heap.allocate(128, 5)).toEqual({ address: 0, bytes: 128 });
  });

  test("gives its upper end to the arena if it is free, and takes it back", () => {
    const heap = new Heap(0, 1024);
    const a = heap.allocate(512);
    if (a === undefined) throw new Error("no room");
    expect(heap.moveEnd(256)).toBe(false);
    expect(heap.moveEnd(768)).toBe(true);
    expect(heap.allocate(512)).toBeUndefined();
    expect(heap.moveEnd(1024)).toBe(true);
    expect(heap.allocate(512)).toEqual({ address: 512, bytes: 512 });
  });

  test("never hands out memory twice and becomes whole again", () => {
    const action = fc.record({ bytes: fc.nat(700), keep: fc.boolean(), pick: fc.nat(100) });
    fc.assert(
      fc.property(fc.array(action, { maxLength: 200 }), (actions) => {
        const heap = new Heap(128, 128 + 64 * 64);
        const live: Block[] = [];
        for (const { bytes, keep, pick } of actions) {
          const block = heap.allocate(bytes);
          if (block !== undefined) {
            expect(block.address % 64).toBe(0);
            expect(block.bytes).toBeGreaterThanOrEqual(bytes);
            for (const other of live) {
              const apart =
                other.address + other.bytes <= block.address || block.address + block.bytes <= other.address;
              expect(apart).toBe(true);
            }
            live.push(block);
          }
          if (!keep && live.length > 0) {
            const [gone] = live.splice(pick % live.length, 1);
            if (gone) heap.release(gone, 0);
          }
          expect(heap.used).toBe(live.reduce((sum, one) => sum + one.bytes, 0));
        }
        for (const block of live) heap.release(block, 0);
        expect(heap.largestFree).toBe(64 * 64);
      }),
    );
  });
});
