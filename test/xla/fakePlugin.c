/*
 * A PJRT plug-in without devices, to test what calls plug-ins. Its programs give their arguments back in order, or
 * nothing where they have none.
 * Words in a module's name ask for faults: "bad" does not compile, "unfused" only without cuDNN's kernels, "looped"
 * only with loops as they stand, "refused" cannot be started, "oom" ends without memory. Everything that it hands out
 * is counted until it comes back, and marked when it does.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a run takes, in microseconds; without any it is over when its start is. */
#ifndef DELAY
#define DELAY 2000
#endif
#ifndef CAPABILITY
#define CAPABILITY "9.0"
#endif

typedef uint64_t word;
enum { EVENT = 0xE1, BUFFER = 0xB1, PROGRAM = 0xA1, ERROR = 0xF1, DEAD = 0xDD };

typedef struct {
  int kind, code;
  char text[256];
} Error;
typedef struct {
  int kind, fails;
  struct timespec made;
} Event;
typedef struct {
  int kind, device;
  size_t size;
  char data[];
} Buffer;
typedef struct {
  int kind;
  size_t size, outputs;
  char text[];
} Program;

static int live[4];
static size_t taken[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const int devices[8] = {0, 1, 2, 3, 4, 5, 6, 7};

int FakeLive(int what) { return live[what]; }

/* How many calls there were of those that runs make, from one thread at a time where somebody counts. */
static int calls;
int FakeCalls(void) { return calls; }

static void count(int what, int by) {
  pthread_mutex_lock(&lock);
  live[what] += by;
  pthread_mutex_unlock(&lock);
}

static Error *fail(int code, const char *text) {
  Error *e = calloc(1, sizeof *e);
  e->kind = ERROR;
  e->code = code;
  snprintf(e->text, sizeof e->text, "%s", text);
  count(3, 1);
  return e;
}

/* A struct that is smaller than the plug-in's own is refused, as real plug-ins do. */
#define NEEDS(bytes) \
  calls++; \
  if (w[0] < (bytes)) return fail(3, "struct is too small: " #bytes)
#define ALIVE(pointer, expected) \
  if ((pointer)->kind != (expected)) return fail(13, "used after it was given back")

static void error_destroy(word *w) {
  Error *e = (Error *)w[2];
  if (e->kind != ERROR) abort();
  e->kind = DEAD;
  count(3, -1);
}
static void error_message(word *w) {
  Error *e = (Error *)w[2];
  w[3] = (word)e->text;
  w[4] = strlen(e->text);
}
static Error *error_code(word *w) {
  ((int32_t *)w)[6] = ((Error *)w[2])->code;
  return 0;
}
static Error *initialize(word *w) {
  NEEDS(16);
  return 0;
}

static Event *new_event(int fails) {
  Event *e = calloc(1, sizeof *e);
  e->kind = EVENT;
  e->fails = fails;
  clock_gettime(CLOCK_MONOTONIC, &e->made);
  count(1, 1);
  return e;
}
static Error *event_destroy(word *w) {
  NEEDS(24);
  Event *e = (Event *)w[2];
  ALIVE(e, EVENT);
  e->kind = DEAD;
  count(1, -1);
  return 0;
}
static Error *out_of_memory(void) { return fail(8, "Out of memory while trying to allocate 745.06GiB"); }
static Error *event_is_ready(word *w) {
  NEEDS(25);
  Event *e = (Event *)w[2];
  ALIVE(e, EVENT);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  long waited = (now.tv_sec - e->made.tv_sec) * 1000000000L + now.tv_nsec - e->made.tv_nsec;
  *(char *)(w + 3) = waited >= DELAY * 1000L;
  return 0;
}
static Error *event_error(word *w) {
  NEEDS(24);
  Event *e = (Event *)w[2];
  ALIVE(e, EVENT);
  return e->fails ? out_of_memory() : 0;
}
typedef void (*Callback)(Error *, void *);
typedef struct {
  Event *event;
  Callback callback;
  void *user;
} Wait;
static void *happen(void *p) {
  Wait *wait = p;
  usleep(DELAY);
  wait->callback(wait->event->fails ? out_of_memory() : 0,
                 wait->user);
  free(wait);
  return 0;
}
static Error *event_on_ready(word *w) {
  NEEDS(40);
  ALIVE((Event *)w[2], EVENT);
  if (DELAY == 0) {
    ((Callback)w[3])(((Event *)w[2])->fails ? out_of_memory() : 0, (void *)w[4]);
    return 0;
  }
  Wait *wait = malloc(sizeof *wait);
  wait->event = (Event *)w[2];
  wait->callback = (Callback)w[3];
  wait->user = (void *)w[4];
  pthread_t thread;
  pthread_create(&thread, 0, happen, wait);
  pthread_detach(thread);
  return 0;
}

static int nodes; /* 0: all devices are of this process */
static int own;   /* which of the nodes this process is */

/* The store that the host gives: functions that stand still until they have the answer, called from any thread. */
typedef Error *(*StoreCall)(word *);
static StoreCall store_get, store_put, store_try_get;
static word store_arguments[3];
static Error *make_error(int code, const char *text, size_t size) {
  char copy[256] = {0};
  memcpy(copy, text, size < 255 ? size : 255);
  return fail(code, copy);
}
static Error *(*error_maker)(int, const char *, size_t) = make_error;

static Error *put_key(const char *key, const char *value, size_t size) {
  word w[8] = {7, 7, (word)key, strlen(key), (word)value, size, (word)&error_maker, store_arguments[1]};
  return store_put(w);
}
static Error *take_value(word *value, char *copy, size_t most) {
  size_t size = value[1] < most - 1 ? value[1] : most - 1;
  memcpy(copy, (char *)value[0], size);
  copy[size] = 0;
  ((void (*)(char *))value[2])((char *)value[0]);
  return 0;
}
static Error *get_key(const char *key, int timeout, char *copy, size_t most) {
  word w[10] = {7, 7, (word)key, strlen(key), 0, (word)&error_maker, store_arguments[0], 0, 0, 0};
  *(int32_t *)(w + 4) = timeout;
  Error *e = store_get(w);
  return e ? e : take_value(w + 7, copy, most);
}
static Error *try_key(const char *key, char *copy, size_t most) {
  word w[9] = {7, 7, (word)key, strlen(key), (word)&error_maker, store_arguments[2], 0, 0, 0};
  Error *e = store_try_get(w);
  return e ? e : take_value(w + 6, copy, most);
}

typedef struct {
  int node;
  int timeout;
  Error *error;
  char text[64];
} Meeting;
static void *meet(void *p) {
  Meeting *m = p;
  char key[64];
  snprintf(key, sizeof key, "topology/%d", m->node);
  m->error = get_key(key, m->timeout, m->text, sizeof m->text);
  return 0;
}
/* As real plug-ins do: says what it has, asks for what all others have on as many threads, and compares. */
static Error *meet_others(int absent) {
  char key[64], text[64], again[64];
  Error *e = try_key("nothing", text, sizeof text);
  if (!e) return fail(13, "a key without a value has one");
  if (e->code != 5) return e;
  e->kind = DEAD;
  count(3, -1);
  snprintf(key, sizeof key, "topology/%d", own);
  snprintf(text, sizeof text, "a device of %d", own);
  if (!absent) {
    if ((e = put_key(key, text, strlen(text)))) return e;
    if ((e = try_key(key, again, sizeof again))) return e;
    if (strcmp(text, again)) return fail(13, "another value than was put");
    if (!(e = put_key(key, "", 0)) || e->code != 6) return fail(13, "a value was put twice");
    e->kind = DEAD;
    count(3, -1);
  }
  Meeting others[8];
  pthread_t threads[8];
  for (int i = 0; i < nodes; i++) {
    others[i].node = i;
    /* On a busy machine the others take long to start. */
    others[i].timeout = absent ? 1500 : 30000;
    pthread_create(threads + i, 0, meet, others + i);
  }
  for (int i = 0; i < nodes; i++) pthread_join(threads[i], 0);
  for (int i = 0; i < nodes; i++) {
    if (others[i].error) return others[i].error;
    snprintf(text, sizeof text, "a device of %d", i);
    if (strcmp(text, others[i].text)) return fail(13, others[i].text);
  }
  return 0;
}
static int clients;
int FakeClients(void) { return clients; }

static Error *client_create(word *w) {
  clients++;
  NEEDS(88);
  int absent = 0;
  nodes = own = 0;
  for (word i = 0; i < w[3]; i++) {
    word *option = (word *)w[2] + 7 * i;
    const char *name = (const char *)option[2];
    if (option[3] == 9 && !memcmp(name, "num_nodes", 9)) nodes = (int)option[5];
    if (option[3] == 7 && !memcmp(name, "node_id", 7)) own = (int)option[5];
    /* A list of devices that has 7 says nothing to the others. */
    if (option[3] == 15 && !memcmp(name, "visible_devices", 15))
      for (word d = 0; d < option[6]; d++) absent |= ((int64_t *)option[5])[d] == 7;
  }
  w[8] = 0x77;
  if (!w[4]) return 0;
  store_get = (StoreCall)w[4];
  store_put = (StoreCall)w[6];
  store_try_get = (StoreCall)w[9];
  store_arguments[0] = w[5];
  store_arguments[1] = w[7];
  store_arguments[2] = w[10];
  return meet_others(absent);
}
static Error *platform_name(word *w) {
  w[3] = (word) "fake";
  w[4] = 4;
  return 0;
}
static Error *platform_version(word *w) {
  w[3] = (word) "fake 1";
  w[4] = 6;
  return 0;
}
static const int *all[8] = {devices, devices + 1, devices + 2, devices + 3, devices + 4, devices + 5, devices + 6, devices + 7};
static Error *client_devices(word *w) {
  NEEDS(40);
  if (w[2] != 0x77) return fail(3, "no client");
  w[3] = (word)all;
  w[4] = nodes ? nodes : 2;
  return 0;
}
static Error *client_addressable(word *w) {
  Error *e = client_devices(w);
  if (nodes) {
    w[3] = (word)(all + own);
    w[4] = 1;
  }
  return e;
}
static Error *process_index(word *w) {
  NEEDS(28);
  ((int32_t *)w)[6] = own;
  return 0;
}
static Error *description_process(word *w) {
  NEEDS(28);
  ((int32_t *)w)[6] = nodes ? *(int *)w[2] : 0;
  return 0;
}
static Error *device_description(word *w) {
  w[3] = w[2];
  return 0;
}
static Error *description_id(word *w) {
  ((int32_t *)w)[6] = *(int *)w[2];
  return 0;
}
static Error *description_kind(word *w) {
  w[3] = (word) "Fake";
  w[4] = 4;
  return 0;
}
static Error *description_attributes(word *w) {
  NEEDS(40);
  static const char name[] = "compute_capability";
  static word values[14];
  values[4] = 1; /* a number, which nobody asked for */
  values[7] = 56;
  values[9] = (word)name;
  values[10] = sizeof name - 1;
  values[12] = (word)CAPABILITY;
  values[13] = sizeof CAPABILITY - 1;
  w[3] = 2;
  w[4] = (word)values;
  return 0;
}
static Error *memory_stats(word *w) {
  NEEDS(201);
  w[3] = taken[*(int *)w[2]];
  w[4] = w[3];
  w[10] = 1 << 20;
  return 0;
}

static Program *new_program(const char *text, size_t size) {
  Program *p = malloc(sizeof *p + size + 1);
  p->kind = PROGRAM;
  p->size = size;
  memcpy(p->text, text, size);
  p->text[size] = 0;
  const char *results = strstr(p->text, "-> (");
  p->outputs = 0;
  if (results && results[4] != ')') {
    p->outputs = 1;
    for (const char *c = results; *c != '{'; c++) p->outputs += *c == ',';
  }
  count(2, 1);
  return p;
}
static Error *compile(word *w) {
  NEEDS(56);
  word *program = (word *)w[3];
  if (program[5] != 4 || memcmp((char *)program[4], "mlir", 4)) return fail(3, "format is not mlir");
  char stack[300000]; /* as much as XLA's compiler needs, and more than the FFI gives by itself */
  memset(stack, 1, sizeof stack);
  const char *text = (const char *)program[2];
  if (memmem(text, program[3], "@bad", 4)) return fail(2, "-:3:10: error: use of value '%2' is wrong");
  if (memmem(text, program[3], "@unfused", 8) && memmem(text, program[3], "__cudnn", 7))
    return fail(12, "No registered implementation for custom call to __cudnn$fmhaSoftmax");
  if (memmem(text, program[3], "@looped", 7) && memmem((char *)w[4], w[5], "xla_gpu_graph", 13))
    return fail(12, "XLA has no such setting");
  if (memmem(text, program[3], "@older", 6) && memmem((char *)w[4], w[5], "xla_gpu_enable_triton_gemm", 26))
    return fail(3, "No such compile option: 'xla_gpu_enable_triton_gemm'");
  if (w[5] == 0 || stack[17] != 1) return fail(3, "no options");
  if (memmem(text, program[3], "@slow", 5)) usleep(250000);
  w[6] = (word)new_program(text, program[3]);
  return 0;
}
static Error *get_executable(word *w) {
  ALIVE((Program *)w[2], PROGRAM);
  w[3] = w[2];
  return 0;
}
static Error *num_outputs(word *w) {
  w[3] = ((Program *)w[2])->outputs;
  return 0;
}
static Error *executable_destroy(word *w) { return 0; }
static Error *loaded_destroy(word *w) {
  NEEDS(24);
  Program *p = (Program *)w[2];
  ALIVE(p, PROGRAM);
  p->kind = DEAD;
  count(2, -1);
  return 0;
}
static void drop(void *owner) { free(owner); }
static Error *serialize(word *w) {
  NEEDS(56);
  Program *p = (Program *)w[2];
  char *copy = malloc(p->size);
  memcpy(copy, p->text, p->size);
  w[3] = (word)copy;
  w[4] = p->size;
  w[5] = (word)copy;
  w[6] = (word)drop;
  return 0;
}
static Error *deserialize(word *w) {
  NEEDS(72);
  if (memcmp((char *)w[3], "module", 6)) return fail(3, "no serialized program");
  w[5] = (word)new_program((char *)w[3], w[4]);
  return 0;
}

static Buffer *new_buffer(size_t size, int device, const void *data) {
  Buffer *b = malloc(sizeof *b + size);
  b->kind = BUFFER;
  b->size = size;
  b->device = device;
  memcpy(b->data, data, size);
  pthread_mutex_lock(&lock);
  live[0]++;
  taken[device] += size;
  pthread_mutex_unlock(&lock);
  return b;
}
static Error *from_host(word *w) {
  NEEDS(120);
  static const int sizes[14] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2};
  size_t n = sizes[((int32_t *)w)[8]];
  for (size_t i = 0; i < w[6]; i++) n *= ((int64_t *)w[5])[i];
  int device = *(int *)w[10];
  if (taken[device] + n > (1 << 20)) return fail(8, "Out of memory allocating");
  w[14] = (word)new_buffer(n, device, (void *)w[3]);
  w[13] = (word)new_event(0);
  return 0;
}
static Error *buffer_destroy(word *w) {
  NEEDS(24);
  Buffer *b = (Buffer *)w[2];
  ALIVE(b, BUFFER);
  b->kind = DEAD;
  pthread_mutex_lock(&lock);
  live[0]--;
  taken[b->device] -= b->size;
  pthread_mutex_unlock(&lock);
  return 0;
}
static Error *copy_to_device(word *w) {
  Buffer *b = (Buffer *)w[2];
  ALIVE(b, BUFFER);
  w[4] = (word)new_buffer(b->size, *(int *)w[3], b->data);
  return 0;
}
static Error *to_host(word *w) {
  NEEDS(56);
  Buffer *b = (Buffer *)w[2];
  ALIVE(b, BUFFER);
  if (w[5] < b->size) return fail(3, "target is too small");
  memcpy((void *)w[4], b->data, b->size);
  w[6] = (word)new_event(0);
  return 0;
}
static Error *execute(word *w) {
  NEEDS(80);
  Program *p = (Program *)w[2];
  ALIVE(p, PROGRAM);
  if (strstr(p->text, "@refused")) return fail(3, "Execution supplied 1 arguments");
  if (strstr(p->text, "@clique")) {
    /* Devices meet when they first run something together, on whatever thread starts it. */
    char id[64];
    Error *e = own == 0 ? put_key("clique", "id", 2) : get_key("clique", 5000, id, sizeof id);
    if (e) return e;
  }
  for (size_t d = 0; d < w[5]; d++) {
    word *arguments = ((word **)w[4])[d], *outputs = ((word **)w[7])[d];
    for (size_t i = 0; i < w[6]; i++) ALIVE((Buffer *)arguments[i], BUFFER);
    for (size_t o = 0; o < p->outputs; o++) {
      Buffer *b = w[6] ? (Buffer *)arguments[o % w[6]] : 0;
      outputs[o] = (word)(b ? new_buffer(b->size, b->device, b->data) : new_buffer(0, 0, ""));
    }
    ((Event **)w[8])[d] = new_event(strstr(p->text, "@oom") != 0);
  }
  return 0;
}

static word table[143];

#ifndef MINOR
#define MINOR 115
#endif

const void *GetPjrtApi(void) {
  table[0] = sizeof table;
  ((int32_t *)table)[8] = 0;
  ((int32_t *)table)[9] = MINOR;
  struct {
    int slot;
    void *function;
  } functions[] = {
      {5, error_destroy},     {6, error_message},      {7, error_code},      {8, initialize},
      {10, event_destroy},    {11, event_is_ready}, {12, event_error}, {14, event_on_ready},    {15, client_create},  {17, platform_name},
      {19, platform_version}, {18, process_index}, {20, client_devices}, {21, client_addressable}, {29, description_process},    {25, compile},        {27, from_host},
      {28, description_id},   {30, description_attributes}, {31, description_kind},  {34, device_description}, {39, memory_stats},
      {45, executable_destroy}, {49, num_outputs},     {54, serialize},      {55, loaded_destroy},
      {56, get_executable},   {60, execute},           {61, deserialize},    {63, buffer_destroy},
      {74, copy_to_device},   {75, to_host},
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    table[functions[i].slot] = (word)functions[i].function;
  return table;
}
