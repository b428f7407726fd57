// Counts what a program allocates of a GPU's memory, between the program and the driver: a count that is not ours.
//
//     cc -O2 -shared -fPIC -o counting.so counting.c -ldl && LD_PRELOAD=./counting.so ./snapshots
//
// It stands in for the driver's functions, whether the program links to them or looks them up with `dlsym`, and whether
// libraries such as cuBLAS look them up with `cuGetProcAddress`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SLOTS = 1 << 20 };

// A hash table of what is allocated; a free slot has address 0, and one that was freed has address 1.
static struct { uint64_t address, bytes; } table[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t bytes_in_use, allocations, calls, most;

uint64_t counted_bytes(void) { return bytes_in_use; }
uint64_t counted_allocations(void) { return allocations; }
uint64_t counted_calls(void) { return calls; }
uint64_t counted_peak(void) { return most; }

static uint32_t slot_of(uint64_t address) { return (address >> 8) * 0x9E3779B97F4A7C15u >> 44; }

static void allocated(uint64_t address, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint32_t slot = slot_of(address) % SLOTS;
    while (table[slot].address > 1) slot = (slot + 1) % SLOTS;
    table[slot].address = address, table[slot].bytes = bytes;
    bytes_in_use += bytes;
    allocations++;
    calls++;
    if (bytes_in_use > most) most = bytes_in_use;
    pthread_mutex_unlock(&lock);
}

static void freed(uint64_t address) {
    pthread_mutex_lock(&lock);
    calls++;
    for (uint32_t slot = slot_of(address) % SLOTS; table[slot].address; slot = (slot + 1) % SLOTS) {
        if (table[slot].address == address) {
            bytes_in_use -= table[slot].bytes;
            allocations--;
            table[slot].address = 1;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

typedef void *(*Lookup)(void *, const char *);
static Lookup lookup(void) {
    static Lookup found;
    if (!found) found = (Lookup)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!found) found = (Lookup)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return found;
}

static void *driver(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return lookup()(library, name);
}

#define REAL(name, ...) static int (*real)(__VA_ARGS__); if (!real) real = driver(name)

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    REAL("cuMemAlloc_v2", uint64_t *, size_t);
    int result = real(address, bytes);
    if (!result) allocated(*address, bytes);
    return result;
}
int cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) {
    REAL("cuMemAllocAsync", uint64_t *, size_t, void *);
    int result = real(address, bytes, stream);
    if (!result) allocated(*address, bytes);
    return result;
}
// Before the driver is called: afterwards, another thread may have the same address.
int cuMemFree_v2(uint64_t address) {
    REAL("cuMemFree_v2", uint64_t);
    freed(address);
    return real(address);
}
int cuMemFreeAsync(uint64_t address, void *stream) {
    REAL("cuMemFreeAsync", uint64_t, void *);
    freed(address);
    return real(address, stream);
}

static void *counting(const char *name) {
    static const struct { const char *name; void *function; } functions[] = {
        {"cuMemAlloc_v2", cuMemAlloc_v2}, {"cuMemAllocAsync", cuMemAllocAsync},
        {"cuMemFree_v2", cuMemFree_v2},   {"cuMemFreeAsync", cuMemFreeAsync},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!strcmp(name, functions[i].name)) return functions[i].function;
    }
    return 0;
}

// Here names come without a version.
static void replace(const char *name, void **function) {
    if (!strcmp(name, "cuMemAlloc")) name = "cuMemAlloc_v2";
    if (!strcmp(name, "cuMemFree")) name = "cuMemFree_v2";
    void *own = counting(name);
    if (own && *function) *function = own;
}
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    REAL("cuGetProcAddress", const char *, void **, int, uint64_t);
    int result = real(name, function, version, flags);
    if (!result) replace(name, function);
    return result;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, void *found) {
    REAL("cuGetProcAddress_v2", const char *, void **, int, uint64_t, void *);
    int result = real(name, function, version, flags, found);
    // It also finds itself.
    if (!result && !strcmp(name, "cuGetProcAddress")) *function = cuGetProcAddress_v2;
    if (!result) replace(name, function);
    return result;
}

void *dlsym(void *library, const char *name) {
    if (!strcmp(name, "cuGetProcAddress")) return cuGetProcAddress;
    if (!strcmp(name, "cuGetProcAddress_v2")) return cuGetProcAddress_v2;
    void *own = counting(name);
    return own ? own : lookup()(library, name);
}
