// The part of the fake CUPTI that samples hardware counters, as CUPTI 12.6 and later do. It follows `cupti.c`.
//
// It behaves as CUPTI 13.0.1 was seen to behave on an H200 (docs/counters.md), and aborts where that crashed, or where
// NVIDIA's header forbids a call. Samples follow each other from the moment that sampling was started; if they do not
// fit into an image, they wait for the next. Values tell the device and the metric: 10 for the first metric of the
// first device, 11 for the next, 20 on the next device, and 99 in the first sample, which is to be dropped.
enum { DEVICES = 4, FAULTS = 8, NAMES = 64, FIRST = 99 };
enum { UNKNOWN = 999, INVALID = 1, OVERFLOWED = 8, NOT_INITIALIZED = 15, BUSY = 26 };

// Calls that fail: on one device or (-1) on all, after so many that succeed.
static struct { char function[NAMES]; int code, device, after, times; } faults[FAULTS];
static struct { char function[NAMES]; int times; } calls[NAMES];
static pthread_mutex_t faulty = PTHREAD_MUTEX_INITIALIZER;
void fake_fail(const char *function, int code, int device, int after, int times) {
    pthread_mutex_lock(&faulty);
    int index = 0;
    while (faults[index].times) if (++index == FAULTS) abort();
    strncpy(faults[index].function, function, NAMES - 1);
    faults[index].code = code, faults[index].device = device;
    faults[index].after = after, faults[index].times = times;
    pthread_mutex_unlock(&faulty);
}
void fake_work(void) {
    pthread_mutex_lock(&faulty);
    memset(faults, 0, sizeof faults);
    pthread_mutex_unlock(&faulty);
}
static int fault(const char *function, int device) {
    int code = 0, index = 0;
    pthread_mutex_lock(&faulty);
    while (calls[index].times && strcmp(calls[index].function, function)) index++;
    strncpy(calls[index].function, function, NAMES - 1);
    calls[index].times++;
    for (index = 0; index < FAULTS && !code; index++) {
        int is_here = device < 0 || faults[index].device < 0 || faults[index].device == device;
        if (!faults[index].times || strcmp(faults[index].function, function) || !is_here) continue;
        if (faults[index].after) faults[index].after--;
        else code = faults[index].code, faults[index].times--;
    }
    pthread_mutex_unlock(&faulty);
    return code;
}
// Returns how often a function was called.
int fake_calls(const char *function) {
    int times = 0;
    pthread_mutex_lock(&faulty);
    for (int index = 0; index < NAMES; index++) {
        if (!strcmp(calls[index].function, function)) times = calls[index].times;
    }
    pthread_mutex_unlock(&faulty);
    return times;
}
static void expect(int is_right, const char *function, const char *what) {
    if (is_right) return;
    fprintf(stderr, "%s: %s\n", function, what);
    abort();
}
#define CALL(device) do { int code = fault(__func__, device); if (code) return code; } while (0)

typedef struct { int device, metrics, passes; } Host;
typedef struct { int device, metrics, is_on, is_fresh, has_overflowed; uint64_t interval, from, until; } Sampler;
typedef struct { uint64_t start, end, is_first; } Sample;
typedef struct { int device, metrics; uint64_t capacity, count; Sample samples[]; } Image;
static _Atomic int hosts, samplers[DEVICES];

typedef struct { size_t size; void *private; } Plain;
int cuptiProfilerInitialize(Plain *params) {
    CALL(-1);
    if (atomic_load(&is_finalized)) return NOT_INITIALIZED;
    expect(atomic_load(&is_nvml_ready), __func__, "a thread that initializes NVML now leaves the driver locked");
    atomic_store(&is_profiling, 1);
    return 0;
}
int cuptiProfilerDeInitialize(Plain *params) {
    CALL(-1);
    for (int device = 0; device < DEVICES; device++) expect(!atomic_load(&samplers[device]), __func__, "still enabled");
    expect(!atomic_load(&hosts), __func__, "a host object is left");
    atomic_store(&is_profiling, 0);
    return 0;
}

typedef struct { size_t size; void *private; size_t device; const char *name; } ChipName;
int cuptiDeviceGetChipName(ChipName *params) {
    CALL(params->device);
    expect(atomic_load(&is_profiling), __func__, "crashes before the profiler is initialised");
    params->name = "GH100";
    return 0;
}
// The levels are those of architecture, SLI, vGPU, confidential computing, CMP and WSL.
typedef struct { size_t size; void *private; int device, supported, levels[6], api; } Supported;
int cuptiProfilerDeviceSupported(Supported *params) {
    CALL(params->device);
    uint64_t unsupported = setting(UNSUPPORTED);
    params->supported = unsupported ? 0 : 3;
    for (uint64_t part = 0; part < 6; part++) params->levels[part] = unsupported == part + 1 ? 0 : 3;
    return 0;
}
typedef struct { size_t size; void *private; size_t device, image_size; uint8_t *image; } Availability;
int cuptiPmSamplingGetCounterAvailability(Availability *params) {
    CALL(params->device);
    if (atomic_load(&samplers[params->device])) return UNKNOWN;
    if (params->image) *params->image = params->device;
    params->image_size = 1;
    return 0;
}

typedef struct {
    size_t size; void *private; uint32_t type; const char *chip; const uint8_t *counters; Host *host;
} NewHost;
int cuptiProfilerHostInitialize(NewHost *params) {
    CALL(*params->counters);
    expect(!strcmp(params->chip, "GH100"), __func__, "another chip");
    params->host = calloc(1, sizeof(Host));
    params->host->device = *params->counters, params->host->passes = 1;
    atomic_fetch_add(&hosts, 1);
    return 0;
}
typedef struct { size_t size; void *private; Host *host; } OldHost;
int cuptiProfilerHostDeinitialize(OldHost *params) {
    CALL(params->host->device);
    atomic_fetch_sub(&hosts, 1);
    free(params->host);
    return 0;
}
typedef struct { size_t size; void *private; Host *host; const char **names; size_t count; } Metrics;
int cuptiProfilerHostConfigAddMetrics(Metrics *params) {
    CALL(params->host->device);
    for (size_t index = 0; index < params->count; index++) {
        const char *name = params->names[index];
        if (strncmp(name, "sm__", 4) && strncmp(name, "dram__", 6) && strncmp(name, "pcie__", 6)) return INVALID;
        if (!strncmp(name, "sm__throughput", 14)) params->host->passes = 19;
        if (!strncmp(name, "sm__inst_executed_pipe_tensor", 29)) params->host->passes = 2;
    }
    params->host->metrics = params->count;
    return 0;
}
typedef struct { size_t size; void *private; Host *host; size_t image_size; Host *image; } Config;
int cuptiProfilerHostGetConfigImageSize(Config *params) {
    CALL(params->host->device);
    params->image_size = sizeof(Host);
    return 0;
}
int cuptiProfilerHostGetConfigImage(Config *params) {
    CALL(params->host->device);
    memcpy(params->image, params->host, sizeof(Host));
    return 0;
}
typedef struct { size_t size; void *private; size_t image_size; const uint8_t *image; size_t passes; } Passes;
int cuptiProfilerHostGetNumOfPasses(Passes *params) {
    CALL(-1);
    Host config;
    memcpy(&config, params->image, sizeof config);
    params->passes = config.passes;
    return 0;
}

typedef struct { size_t size; void *private; size_t device; Sampler *sampler; } Enabling;
int cuptiPmSamplingEnable(Enabling *params) {
    CALL(params->device);
    if (atomic_fetch_add(&samplers[params->device], 1)) {
        atomic_fetch_sub(&samplers[params->device], 1);
        return BUSY;
    }
    params->sampler = calloc(1, sizeof(Sampler));
    params->sampler->device = params->device;
    return 0;
}
typedef struct { size_t size; void *private; Sampler *sampler; } Sampling;
int cuptiPmSamplingDisable(Sampling *params) {
    CALL(params->sampler->device);
    atomic_fetch_sub(&samplers[params->sampler->device], 1);
    free(params->sampler);
    return 0;
}
int cuptiPmSamplingStart(Sampling *params) {
    CALL(params->sampler->device);
    Sampler *sampler = params->sampler;
    if (!sampler->metrics || sampler->is_on || sampler->has_overflowed) return UNKNOWN;
    sampler->is_on = sampler->is_fresh = 1, sampler->from = now();
    return 0;
}
int cuptiPmSamplingStop(Sampling *params) {
    CALL(params->sampler->device);
    if (!params->sampler->is_on) return UNKNOWN;
    params->sampler->is_on = 0, params->sampler->until = now();
    return 0;
}
typedef struct {
    size_t size; void *private; Sampler *sampler; size_t config_size; const uint8_t *config; size_t buffer;
    uint64_t interval; uint32_t trigger, append;
} Configuring;
int cuptiPmSamplingSetConfig(Configuring *params) {
    CALL(params->sampler->device);
    struct timespec pause = {.tv_nsec = 1000000};
    while (setting(BLOCKED)) nanosleep(&pause, 0);
    Host config;
    memcpy(&config, params->config, sizeof config);
    expect(config.device == params->sampler->device, __func__, "the configuration is for another device");
    if (config.passes != 1) return INVALID;
    params->sampler->metrics = config.metrics, params->sampler->interval = params->interval;
    return 0;
}
typedef struct {
    size_t size; void *private; Sampler *sampler; const char **names; size_t count; uint32_t most; size_t bytes;
} DataSize;
int cuptiPmSamplingGetCounterDataSize(DataSize *params) {
    CALL(params->sampler->device);
    params->bytes = setting(DATA_SIZE) ? setting(DATA_SIZE) : sizeof(Image) + params->most * sizeof(Sample);
    return 0;
}
typedef struct { size_t size; void *private; Sampler *sampler; size_t bytes; Image *image; } NewImage;
int cuptiPmSamplingCounterDataImageInitialize(NewImage *params) {
    CALL(params->sampler->device);
    uint64_t capacity = (params->bytes - sizeof(Image)) / sizeof(Sample);
    *params->image = (Image){params->sampler->device, params->sampler->metrics, capacity, 0};
    return 0;
}
typedef struct {
    size_t size; void *private; Sampler *sampler; Image *image; size_t bytes; uint32_t why; uint8_t overflow;
} Decoding;
int cuptiPmSamplingDecodeData(Decoding *params) {
    Sampler *sampler = params->sampler;
    Image *image = params->image;
    CALL(sampler->device);
    expect(image->device == sampler->device, __func__, "the image is for another device");
    if (sampler->interval < setting(OVERFLOW_BELOW)) {
        sampler->has_overflowed = params->overflow = 1;
        return OVERFLOWED;
    }
    uint64_t until = sampler->is_on ? now() : sampler->until, before = image->count;
    while (sampler->from + sampler->interval <= until && image->count < image->capacity) {
        uint64_t start = sampler->from;
        sampler->from += sampler->interval;
        image->samples[image->count++] = (Sample){start, sampler->from, sampler->is_fresh};
        sampler->is_fresh = 0;
    }
    if (setting(FULL_IMAGES) && image->count > before + 1) {
        // As if there were room for half of the samples; the others are lost.
        fake_set(FULL_IMAGES, setting(FULL_IMAGES) - 1);
        image->count -= (image->count - before) / 2, params->why = 1;
    }
    return 0;
}
typedef struct { size_t size; void *private; const Image *image; size_t bytes, total, populated, completed; } DataInfo;
int cuptiPmSamplingGetCounterDataInfo(DataInfo *params) {
    CALL(params->image->device);
    params->total = params->image->capacity;
    params->populated = params->completed = params->image->count;
    return 0;
}
typedef struct {
    size_t size; void *private; Sampler *sampler; const Image *image; size_t bytes, index; uint64_t start, end;
} SampleInfo;
int cuptiPmSamplingCounterDataGetSampleInfo(SampleInfo *params) {
    CALL(params->image->device);
    expect(params->index < params->image->count, __func__, "no such sample");
    Sample sample = params->image->samples[params->index];
    params->start = sample.start, params->end = sample.end;
    return 0;
}
typedef struct {
    size_t size; void *private; Host *host; const Image *image; size_t bytes, index; const char **names; size_t count;
    double *values;
} Evaluation;
int cuptiProfilerHostEvaluateToGpuValues(Evaluation *params) {
    const Image *image = params->image;
    CALL(image->device);
    expect(image->device == params->host->device, __func__, "the host object is for another device");
    expect(params->count == (size_t)image->metrics, __func__, "another number of metrics");
    for (size_t metric = 0; metric < params->count; metric++) {
        int value = 10 * (image->device + 1) + metric;
        params->values[metric] = image->samples[params->index].is_first ? FIRST : value;
    }
    return 0;
}
