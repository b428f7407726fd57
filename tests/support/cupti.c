// A driver and a CUPTI with no GPU behind them, for what no recording can show: what happens when. `launch` and `copy` call back as
// CUPTI does; `record` writes what came of them; buffers come back when they are flushed or full, but for what is held back.
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "No GPU", length); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return 0; }

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

enum { KERNEL = 10, RECORD = 208, LAUNCH = 307, COPY = 277, FUNCTIONS = 2000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Called called;
static void *watch;
static uint8_t watched[FUNCTIONS];
static Requested requested;
static Completed completed;
static uint32_t recording, correlation = 100;
static uint8_t *buffer;
static size_t length, used;
static int finalized;

int cuptiGetVersion(uint32_t *version) { *version = 130001; return 0; }
int cuptiGetTimestamp(uint64_t *nanos) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *nanos = now.tv_sec * 1000000000ull + now.tv_nsec;
    return 0;
}
int cuptiGetResultString(uint32_t code, const char **text) { *text = "no text"; return 0; }
int cuptiGetCallbackName(uint32_t domain, uint32_t function, const char **name) {
    *name = function == LAUNCH ? "cuLaunchKernel" : function == COPY ? "cuMemcpyHtoDAsync_v2" : "other";
    return 0;
}
int cuptiSetThreadIdType(uint32_t type) { return 0; }
int cuptiSubscribe(void **subscriber, Called callback, void *data) {
    if (called) return 39;
    watch = data;
    called = callback;
    *subscriber = &called;
    return 0;
}
int cuptiUnsubscribe(void *subscriber) { called = 0; return 0; }
int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t function) {
    if (function < FUNCTIONS) watched[function] = enable;
    return 0;
}
int cuptiEnableDomain(uint32_t enable, void *subscriber, uint32_t domain) { return 0; }
int cuptiActivityRegisterCallbacks(Requested give, Completed take) {
    requested = give;
    completed = take;
    return 0;
}
int cuptiActivityEnable(uint32_t kind) { recording |= 1u << (kind & 31); return 0; }
int cuptiActivityDisable(uint32_t kind) { recording &= ~(1u << (kind & 31)); return 0; }
static void give_back(void) {
    if (buffer) completed(0, 0, buffer, length, used);
    buffer = 0;
    used = 0;
}
int cuptiActivityFlushAll(uint32_t flags) {
    pthread_mutex_lock(&lock);
    give_back();
    pthread_mutex_unlock(&lock);
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t *bytes, size_t size, uint8_t **record) {
    uint8_t *next = *record ? *record + RECORD : bytes;
    if (next + RECORD > bytes + size) return 12;
    *record = next;
    return 0;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) { *dropped = 0; return 0; }
int cuptiFinalize(void) { finalized++; return 0; }

// A call of the driver; returns its number.
uint32_t fake_call(int copies) {
    uint32_t function = copies ? COPY : LAUNCH, result = 0;
    uint64_t word = 0;
    About about = {.result = &result, .context_uid = 1, .word = &word, .correlation = __sync_fetch_and_add(&correlation, 1)};
    Called now = called;
    if (now && watched[function]) now(watch, 1, function, &about);
    about.site = 1;
    now = called;
    if (now && watched[function]) now(watch, 1, function, &about);
    return about.correlation;
}

// What came of it: a kernel, or a copy, that just ran.
void fake_record(int copies, uint32_t number) {
    static const char name[] = "kernel";
    const char *at = name;
    uint32_t kind = copies ? 1 : KERNEL;
    uint64_t end, start;
    cuptiGetTimestamp(&end);
    start = end - 100;
    pthread_mutex_lock(&lock);
    if (recording && requested) {
        size_t most;
        if (buffer && used + RECORD > length) give_back();
        if (!buffer) requested(&buffer, &length, &most);
        uint8_t *record = buffer + used;
        used += RECORD;
        memset(record, 0, RECORD);
        memcpy(record, &kind, 4);
        memcpy(record + 16, &start, 8);
        memcpy(record + 24, &end, 8);
        memcpy(record + (copies ? 44 : 92), &number, 4);
        if (!copies) memcpy(record + 104, &at, 8);
    }
    pthread_mutex_unlock(&lock);
}

int fake_finalized(void) { return finalized; }
