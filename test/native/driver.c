// Runs products in machine code for another processor under an emulator, against plain sums; see emulated.test.ts.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 65536 };
typedef void (*Runner)(const int64_t *program, uintptr_t a, uintptr_t b, uintptr_t c);

static int64_t next(FILE *file) {
  int64_t value;
  if (fread(&value, 8, 1, file) != 1) exit(3);
  return value;
}

static double nextReal(FILE *file) {
  int64_t bits = next(file);
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

// Memory that ends at a page nobody may touch.
static char *guarded(int64_t bytes) {
  int64_t size = (bytes + PAGE - 1) / PAGE * PAGE;
  char *at = mmap(0, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(at + size, PAGE, PROT_NONE);
  return at + size - bytes;
}

static double get(const char *at, int size, int64_t index) {
  if (size == 2) {
    uint32_t bits = (uint32_t)((const uint16_t *)at)[index] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
  return size == 4 ? ((const float *)at)[index] : ((const double *)at)[index];
}

static void set(char *at, int size, int64_t index, double value) {
  if (size == 2) {
    // The lower bits are cut off: any bfloat16 will do.
    float single = value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    ((uint16_t *)at)[index] = bits >> 16;
  } else if (size == 4) ((float *)at)[index] = value;
  else ((double *)at)[index] = value;
}

static uint32_t state = 1;
static double sample(void) {
  state = state * 1664525 + 1013904223;
  return state / 2147483648.0 - 1;
}

int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  int64_t codeBytes = next(file), runnerAt = next(file), numProducts = next(file);
  char *code = mmap(0, codeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fread(code, 1, codeBytes, file) != (size_t)codeBytes) return 3;
  mprotect(code, codeBytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(code, code + codeBytes);
  Runner run = (Runner)(code + runnerAt);
  int wrong = 0;
  for (int64_t p = 0; p < numProducts; p++) {
    int size = next(file), factorSize = next(file), tA = next(file), tB = next(file);
    int64_t m = next(file), n = next(file), k = next(file), lda = next(file), ldb = next(file), ldc = next(file);
    double alpha = nextReal(file), beta = nextReal(file);
    int64_t roomA = next(file), roomB = next(file), count = next(file), numTasks = next(file);
    int64_t lengths[3] = {((tA ? k : m) - 1) * lda + (tA ? m : k), ((tB ? n : k) - 1) * ldb + (tB ? k : n), (m - 1) * ldc + n};
    char *at[3], *packed[2] = {guarded(roomA), guarded(roomB)};
    // All bits set is NaN in every type: what was packed before must not shine through.
    memset(packed[0], 255, roomA);
    memset(packed[1], 255, roomB);
    for (int i = 0; i < 3; i++) {
      int each = i < 2 ? factorSize : size;
      at[i] = guarded(count * lengths[i] * each);
      for (int64_t e = 0; e < count * lengths[i]; e++) set(at[i], each, e, sample());
    }
    if (p % 5 == 1) set(at[0], factorSize, lengths[0] / 2, NAN);
    if (p % 5 == 2) set(at[1], factorSize, lengths[1] / 3, -INFINITY);
    char *old = malloc(count * lengths[2] * size);
    memcpy(old, at[2], count * lengths[2] * size);
    int64_t *records = calloc(numTasks + 2, 64);
    records[0] = count;
    for (int i = 0; i < 3; i++) records[1 + i] = lengths[i] * (i < 2 ? factorSize : size);
    for (int64_t t = 1; t <= numTasks; t++) {
      int64_t *record = records + 8 * t;
      record[0] = (int64_t)code + next(file);
      // For each argument: 0 as it is, 1 an address in packed A, 2 in packed B.
      for (int i = 1; i < 8; i++) {
        int64_t where = next(file), value = next(file);
        record[i] = where ? (int64_t)packed[where - 1] + value : value;
      }
    }
    run(records, (uintptr_t)at[0], (uintptr_t)at[1], (uintptr_t)at[2]);
    for (int64_t row = 0; row < count * m; row++) {
      int64_t batch = row / m, i = row % m;
      char *a = at[0] + batch * records[1], *b = at[1] + batch * records[2], *c = at[2] + batch * records[3];
      for (int64_t j = 0; j < ldc && i * ldc + j < lengths[2]; j++) {
        double got = get(c, size, i * ldc + j), before = get(old + batch * records[3], size, i * ldc + j);
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; j < n && l < k; l++) {
          double term = get(a, factorSize, tA ? l * lda + i : i * lda + l) * get(b, factorSize, tB ? j * ldb + l : l * ldb + j);
          sum += term;
          magnitude += fabs(term);
        }
        double want = j < n ? alpha * sum + beta * before : before;
        double bound = j < n ? 2 * (k + 4) * (size == 4 ? 0x1p-24 : 0x1p-53) * (fabs(alpha) * magnitude + fabs(beta * before)) : 0;
        int right = isfinite(want) ? fabs(got - want) <= bound : isnan(want) ? isnan(got) : got == want;
        if (!right && wrong++ < 5)
          printf("product %ld (%ld x %ld x %ld): element %ld, %ld is %g, not %g\n", (long)p, (long)m, (long)n, (long)k, (long)i, (long)j, got, want);
      }
    }
  }
  printf("%ld products, %d wrong elements\n", (long)numProducts, wrong);
  return wrong != 0;
}
