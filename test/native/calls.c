// Runs the machine code that begins messages and looks for them for another processor; see emulatedCalls.test.ts.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef void (*CallAll)(const int64_t *list, int64_t count, int32_t *flag);
typedef void (*Look)(int64_t count, int64_t requests, int32_t *flag, int64_t statuses, void *look, int64_t times);

// What is above the 32 bits of a result is anything.
static int64_t result(int code) { return (int64_t)0x5555555500000000 | (uint32_t)code; }

static int64_t show(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g) {
  printf("%ld %ld %ld %ld %ld %ld %ld\n", a, b, c, d, e, f, g);
  return result((int)(g % 100));
}

static int numLooks, doneAt, failsAt;

static int64_t look(int64_t count, int64_t requests, int32_t *flag, int64_t statuses) {
  numLooks++;
  if (count != 2 || requests != 3 || statuses != 4) printf("wrong arguments\n");
  *flag = numLooks == doneAt;
  return result(numLooks == failsAt ? 7 : 0);
}

static void tryLook(Look code, int done, int fails) {
  int32_t flag[4] = {0, 0, -1, -1};
  numLooks = 0, doneAt = done, failsAt = fails;
  code(2, 3, flag, 4, look, 5);
  printf("%d looks, flag %d, result %d\n", numLooks, flag[0], flag[2]);
}

int main(int argc, char **argv) {
  // The code of the calls, from a multiple of 256 on that of the looks.
  char *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FILE *file = fopen(argv[argc - 1], "rb");
  if (!file || fread(code, 1, 4096, file) == 0) return 3;
  mprotect(code, 4096, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(code, code + 4096);
  int64_t list[3][8] = {{(int64_t)show, 1, 2, 3, 4, 5, 6, 700},
                        {(int64_t)show, 11, 12, 13, 14, 15, 16, 1705},
                        {(int64_t)show, 0, 0, 0, 0, 0, 0, 0}};
  int32_t flag[4] = {0, 0, -1, -1};
  ((CallAll)code)(list[0], 3, flag);
  printf("result %d\n", flag[2]);
  tryLook((Look)(code + 256), 3, 0);
  tryLook((Look)(code + 256), 0, 2);
  tryLook((Look)(code + 256), 0, 0);
  return 0;
}
