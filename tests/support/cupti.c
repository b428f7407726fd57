// A fake driver and a fake CUPTI, for tests of timing that no recording can show.
//
// They behave as CUPTI 13.0.1 was seen to behave on an H200 beside threads that launch without pause (benches/gpu,
// `switching`):
// - A buffer comes back when it is full or flushed, and not before all work that is recorded in it is done.
// - Correlation ids start again from 1 when CUPTI is attached again.
// - A call whose callback is disabled while a thread is in it stays on a stack of that thread. All later launches of
//   the thread have the correlation id of that call, and the third one crashes. Only unsubscribing clears that stack.
// - If recording ends while a thread is in a call, a later launch of that thread crashes.
// - If the subscriber goes and another comes while a thread is in a callback, the thread crashes when it returns.
//
// They abort where CUPTI promises nothing: if two calls change its state at once, or if it is detached while
// subscribed.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Settings of a test, by the numbers in tests/gpu/fake.rs. Most are for `counters.c`.
enum {
    DEVICE_COUNT, IDLE_DEVICES, UNSUPPORTED, OVERFLOW_BELOW, FULL_IMAGES, DATA_SIZE, BLOCKED, STUCK_NVML, STUCK_CUPTI,
    SETTINGS
};
static _Atomic uint64_t settings[SETTINGS] = {[DEVICE_COUNT] = 1};
void fake_set(uint32_t setting, uint64_t value) { atomic_store(&settings[setting], value); }
static uint64_t setting(uint32_t setting) { return atomic_load(&settings[setting]); }

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = setting(DEVICE_COUNT); return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "No GPU", length); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return 0; }

// Stays here for as long as the setting is on, as in a call that waits for a lock that nobody releases.
static void stay(uint32_t which) {
    while (setting(which)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, 0);
}

// NVML is in this library, too.
static _Atomic int is_nvml_ready;
int nvmlInit_v2(void) { atomic_store(&is_nvml_ready, 1); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { stay(STUCK_NVML); *count = 0; return 0; }
int nvmlDeviceGetHandleByUUID(const char *id, void **device) { stay(STUCK_NVML); *device = settings; return 0; }

typedef struct {
    uint32_t site;
    const char *function;
    const void *parameters;
    const uint32_t *result;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *word;
    uint32_t correlation;
} About;

typedef void (*Called)(void *, uint32_t, uint32_t, const void *);
typedef void (*Requested)(uint8_t **, size_t *, size_t *);
typedef void (*Completed)(void *, uint32_t, uint8_t *, size_t, size_t);

enum { KERNEL = 10, COPY_KIND = 1, RECORD = 208, LAUNCH = 307, COPY = 277 };
enum { FUNCTIONS = 2000, DEEPEST = 3, BUFFERS = 4096 };

static _Atomic(Called) called;
static _Atomic(void *) watch;
static _Atomic uint8_t watched[FUNCTIONS];
static _Atomic(Requested) requested;
static _Atomic(Completed) completed;
static _Atomic uint32_t recording, correlation = 1, subscription, finalized, flushed;
// Whether CUPTI is detached since `cuptiFinalize`, and whether its profiler is initialised.
static _Atomic int is_finalized, is_profiling;

// Whether a call is changing CUPTI's state: one may do so at a time.
static _Atomic int changing;
static void begin(const char *function) {
    if (atomic_exchange(&changing, 1)) {
        fprintf(stderr, "%s while another function of CUPTI changes its state\n", function);
        abort();
    }
    static _Atomic uint32_t calls;
    if (atomic_fetch_add(&calls, 1) % 64 == 0) sched_yield();
}
static int end(int result) {
    atomic_store(&changing, 0);
    return result;
}

static uint64_t now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int cuptiGetVersion(uint32_t *version) { *version = 130001; return 0; }
int cuptiGetTimestamp(uint64_t *nanos) { *nanos = now(); return 0; }
int cuptiGetResultString(uint32_t code, const char **text) { *text = "no text"; return 0; }
int cuptiGetCallbackName(uint32_t domain, uint32_t function, const char **name) {
    *name = function == LAUNCH ? "cuLaunchKernel" : function == COPY ? "cuMemcpyHtoDAsync_v2" : "other";
    return 0;
}
int cuptiSetThreadIdType(uint32_t type) { return 0; }
int cuptiSubscribe(void **subscriber, Called callback, void *data) {
    begin(__func__);
    if (!atomic_load(&is_nvml_ready)) {
        fprintf(stderr, "cuptiSubscribe: a thread that initializes NVML now leaves the driver locked\n");
        abort();
    }
    if (atomic_load(&called)) return end(39);
    for (int function = 0; function < FUNCTIONS; function++) atomic_store(&watched[function], 0);
    atomic_store(&watch, data);
    atomic_fetch_add(&subscription, 1);
    atomic_store(&called, callback);
    *subscriber = (void *)&called;
    return end(0);
}
int cuptiUnsubscribe(void *subscriber) {
    begin(__func__);
    atomic_store(&called, 0);
    atomic_fetch_add(&subscription, 1);
    return end(0);
}
int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t function) {
    begin(__func__);
    if (function < FUNCTIONS) atomic_store(&watched[function], enable);
    return end(0);
}
int cuptiEnableDomain(uint32_t enable, void *subscriber, uint32_t domain) {
    begin(__func__);
    return end(0);
}
int cuptiActivityRegisterCallbacks(Requested give, Completed take) {
    begin(__func__);
    atomic_store(&requested, give);
    atomic_store(&completed, take);
    return end(0);
}
int cuptiActivityEnable(uint32_t kind) {
    begin(__func__);
    atomic_store(&is_finalized, 0);
    atomic_fetch_or(&recording, 1u << (kind & 31));
    return end(0);
}
int cuptiActivityDisable(uint32_t kind) {
    begin(__func__);
    atomic_fetch_and(&recording, ~(1u << (kind & 31)));
    return end(0);
}

// The buffers that have not come back; the last is the one that is written to.
typedef struct {
    uint8_t *bytes;
    size_t length, used;
    // The time at which all work that is recorded in it is done.
    uint64_t done;
} Buffer;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Buffer buffers[BUFFERS];
static size_t filled;

static void give_back(int forced) {
    Buffer ready[BUFFERS / 64];
    size_t count = 0, kept = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < filled; i++) {
        if (count < BUFFERS / 64 && (forced || buffers[i].done <= now())) ready[count++] = buffers[i];
        else buffers[kept++] = buffers[i];
    }
    filled = kept;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++) atomic_load(&completed)(0, 0, ready[i].bytes, ready[i].length, ready[i].used);
}
int cuptiActivityFlushAll(uint32_t flags) {
    begin(__func__);
    atomic_fetch_add(&flushed, 1);
    stay(STUCK_CUPTI);
    give_back(flags & 1);
    return end(0);
}
int cuptiActivityGetNextRecord(uint8_t *bytes, size_t size, uint8_t **record) {
    uint8_t *next = *record ? *record + RECORD : bytes;
    if (next + RECORD > bytes + size) return 12;
    *record = next;
    return 0;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    begin(__func__);
    *dropped = 0;
    return end(0);
}
int cuptiFinalize(void) {
    begin(__func__);
    if (atomic_load(&called) || atomic_load(&recording)) {
        fprintf(stderr, "cuptiFinalize while subscribed or recording\n");
        abort();
    }
    if (atomic_load(&is_profiling)) {
        fprintf(stderr, "cuptiFinalize before cuptiProfilerDeInitialize\n");
        abort();
    }
    give_back(1);
    atomic_store(&is_finalized, 1);
    atomic_store(&correlation, 1);
    atomic_fetch_add(&finalized, 1);
    return end(0);
}

// Writes the record of a kernel or a copy that starts now and takes this long.
static void record(int copies, uint32_t number, uint64_t nanos) {
    static const char name[] = "kernel";
    const char *at = name;
    uint32_t kind = copies ? COPY_KIND : KERNEL;
    uint64_t start = now(), end = start + nanos;
    pthread_mutex_lock(&lock);
    if (!filled || buffers[filled - 1].used + RECORD > buffers[filled - 1].length) {
        size_t most;
        Buffer *next = &buffers[filled++];
        if (filled > BUFFERS) abort();
        *next = (Buffer){0};
        atomic_load(&requested)(&next->bytes, &next->length, &most);
    }
    Buffer *buffer = &buffers[filled - 1];
    uint8_t *record = buffer->bytes + buffer->used;
    buffer->used += RECORD;
    if (end > buffer->done) buffer->done = end;
    memset(record, 0, RECORD);
    memcpy(record, &kind, 4);
    memcpy(record + 16, &start, 8);
    memcpy(record + 24, &end, 8);
    memcpy(record + (copies ? 44 : 92), &number, 4);
    if (!copies) memcpy(record + 104, &at, 8);
    pthread_mutex_unlock(&lock);
}

// CUPTI's stack of the calls that this thread is in.
static _Thread_local struct {
    uint32_t of, depth, correlation, torn;
} stack;

// The correlation id of this thread's next call, if it has one already.
static _Thread_local uint32_t taken;

static _Thread_local int in_callback;

// Suspends a thread now and then for longer than a window takes, as on a busy machine.
static void maybe_suspend(_Atomic uint32_t *calls, uint32_t each) {
    struct timespec suspended = {.tv_nsec = 4000000};
    if (atomic_fetch_add(calls, 1) % each == 0) nanosleep(&suspended, 0);
}

// Suspends threads that wait in a callback, if this library is preloaded.
int sched_yield(void) {
    static _Atomic uint32_t calls;
    if (in_callback) maybe_suspend(&calls, 32);
    return syscall(SYS_sched_yield);
}

static void call_back(uint32_t of, Called callback, uint32_t function, const About *about) {
    static _Atomic uint32_t calls;
    in_callback = 1;
    callback(atomic_load(&watch), 1, function, about);
    in_callback = 0;
    maybe_suspend(&calls, 1999);
    if (of != atomic_load(&subscription) && atomic_load(&called)) {
        fprintf(stderr, "a crash: subscribed anew while a thread was in a callback\n");
        abort();
    }
}

static void in_call(int copies, void (*inside)(int, uint32_t, uint64_t), uint64_t nanos, uint32_t *number) {
    uint32_t function = copies ? COPY : LAUNCH, result = 0;
    uint64_t word = 0;
    About about = {.result = &result, .context_uid = 1, .word = &word};
    uint32_t of = atomic_load(&subscription);
    if (stack.of != of) stack.of = of, stack.depth = 0;
    Called callback = atomic_load(&called);
    int entered = callback && atomic_load(&watched[function]);
    if (!stack.depth) stack.correlation = taken ? taken : atomic_fetch_add(&correlation, 1);
    taken = 0;
    *number = about.correlation = stack.correlation;
    if (entered) {
        if (++stack.depth > DEEPEST) {
            fprintf(stderr, "a crash: callbacks were disabled while threads were in calls\n");
            abort();
        }
        call_back(of, callback, function, &about);
    }
    uint32_t kinds = atomic_load(&recording), attached = atomic_load(&finalized);
    if (stack.torn && kinds) {
        fprintf(stderr, "a crash: recording ended while a thread was in a call\n");
        abort();
    }
    if (*number % 64 == 0) sched_yield();
    // If CUPTI was detached meanwhile, it has forgotten the call.
    int is_known = attached == atomic_load(&finalized);
    if (inside && is_known && kinds & 1u << (copies ? COPY_KIND : KERNEL)) inside(copies, *number, nanos);
    if (entered && kinds && !atomic_load(&recording)) stack.torn = 1;
    about.site = 1;
    of = atomic_load(&subscription);
    callback = atomic_load(&called);
    if (callback && atomic_load(&watched[function])) {
        if (stack.of == of && stack.depth) stack.depth--;
        call_back(of, callback, function, &about);
    }
}

// Makes a call of the driver without a record of its work, and returns the correlation id.
uint32_t fake_call(int copies) {
    uint32_t number;
    in_call(copies, 0, 0, &number);
    return number;
}

// Writes the record of such a call, perhaps much later: a kernel or a copy that just ran.
void fake_record(int copies, uint32_t number) { record(copies, number, 0); }

// Launches a kernel that takes this long.
void fake_launch(uint64_t nanos) {
    uint32_t number;
    in_call(0, record, nanos, &number);
}

// A memory of one GiB, allocated from the driver's pool. Each allocation has an address of its own.
enum { ALLOCATE = 598, FREE = 600, MOST = 1 << 16 };
static const uint64_t SIZE = 1 << 30, BASE = 0x7f0000000000, APART = 1 << 12;
static _Atomic uint64_t used, high, sizes[MOST];
static _Atomic uint32_t allocations;

int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = SIZE; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0, *active = !(setting(IDLE_DEVICES) >> device & 1);
    return 0;
}
int cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = sizes; return 0; }
int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
    *(uint64_t *)value = attribute == 5 ? SIZE : attribute == 7 ? atomic_load(&used) : atomic_load(&high);
    return 0;
}
int cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
    if (attribute == 8) atomic_store(&high, atomic_load(&used));
    return 0;
}

static uint32_t memory_call(uint32_t function, const void *parameters, uint32_t (*inside)(void *), void *about_it) {
    uint32_t result = 0;
    uint64_t word = 0;
    About about = {.result = &result, .context_uid = 1, .word = &word, .parameters = parameters};
    about.correlation = atomic_fetch_add(&correlation, 1);
    for (about.site = 0; about.site < 2; about.site++) {
        Called callback = atomic_load(&called);
        if (about.site) result = inside(about_it);
        if (callback && atomic_load(&watched[function])) {
            call_back(atomic_load(&subscription), callback, function, &about);
        }
    }
    return result;
}

typedef struct { uint64_t *address; size_t bytes; } Allocation;
static uint32_t allocate(void *about) {
    Allocation *wanted = about;
    uint32_t index = atomic_fetch_add(&allocations, 1);
    uint64_t now = atomic_fetch_add(&used, wanted->bytes) + wanted->bytes;
    if (now > SIZE || index >= MOST) {
        atomic_fetch_sub(&used, wanted->bytes);
        return 2;
    }
    for (uint64_t seen = atomic_load(&high); now > seen && !atomic_compare_exchange_weak(&high, &seen, now);) {}
    atomic_store(&sizes[index], wanted->bytes);
    *wanted->address = BASE + index * APART;
    return 0;
}
static uint32_t release(void *about) {
    atomic_fetch_sub(&used, atomic_exchange(&sizes[(*(uint64_t *)about - BASE) / APART], 0));
    return 0;
}

// Allocates, and returns the address; 0 if there is not enough memory.
uint64_t fake_allocate(uint64_t bytes) {
    uint64_t address = 0;
    Allocation wanted = {&address, bytes};
    return memory_call(ALLOCATE, &wanted, allocate, &wanted) ? 0 : address;
}
void fake_free(uint64_t address) { memory_call(FREE, &address, release, &address); }
uint64_t fake_used(void) { return atomic_load(&used); }

// Leaves this thread in a call that never ends, as if its callback had been disabled meanwhile.
void fake_break(void) {
    stack.of = atomic_load(&subscription);
    stack.depth = 1;
    stack.correlation = atomic_fetch_add(&correlation, 1);
}

// Takes the correlation id of this thread's next call, as if the thread were suspended before its callback.
void fake_suspend(void) { taken = atomic_fetch_add(&correlation, 1); }

int fake_recording(void) { return atomic_load(&recording) != 0; }
int fake_finalized(void) { return atomic_load(&finalized); }
int fake_flushed(void) { return atomic_load(&flushed); }
