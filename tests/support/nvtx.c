// A tool that receives NVTX annotations, as Nsight does: a library that NVTX_INJECTION64_PATH names. It writes each call
// as a line to the file that NVTX_TEST_LOG names. The layout is that of NVIDIA's headers, nvtx3/nvtxDetail/nvtxTypes.h.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} attributes;

typedef struct {
    size_t size;
    int (*table)(int module, void ****table, unsigned *size);
} callbacks;

typedef struct {
    size_t size;
    uint32_t version, reserved;
    void (*set_version)(uint32_t version);
} version_info;

// One write per line, so that lines of threads do not mix.
static void line(const char *call, const void *domain, const char *text) {
    static FILE *file;
    if (!file) file = fopen(getenv("NVTX_TEST_LOG"), "a");
    fprintf(file, "%ld %s %s %s\n", syscall(SYS_gettid), call, domain ? (const char *)domain : "-", text);
    fflush(file);
}

static const char *text_of(const attributes *event) {
    if (event->version != 3 || event->size != 48) return "(a wrong layout)";
    switch (event->message_type) {
    case 1: { // a string
        char *text;
        return asprintf(&text, "\"%s\"", (const char *)event->message) < 0 ? "" : text;
    }
    case 3: return event->message; // one that was registered
    default: return "(a wrong type)";
    }
}

static void *create(const char *name) { line("create", NULL, name); return strdup(name); }
static void *reg(void *domain, const char *name) { line("register", domain, name); return strdup(name); }
static int push(void *domain, const attributes *event) { line("push", domain, text_of(event)); return 0; }
static int pop(void *domain) { line("pop", domain, ""); return 0; }
static uint64_t start(void *domain, const attributes *event) {
    const char *text = text_of(event);
    line("start", domain, text);
    return (uint64_t)(uintptr_t)strdup(text);
}
static void end(void *domain, uint64_t range) { line("end", domain, (const char *)(uintptr_t)range); }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    if (getenv("NVTX_TEST_REFUSE")) return 0;
    const version_info *version = export_table(3);
    const callbacks *tables = export_table(1);
    if (!version || version->size != sizeof *version || !tables || tables->size != sizeof *tables) return 0;
    version->set_version(3);
    // Real tools ask for all modules, and give up if one is too small.
    const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
    void ***table;
    unsigned size;
    for (int module = 1; module <= 6; module++) {
        if (!tables->table(module, &table, &size) || size < sizes[module]) return 0;
        for (unsigned index = 1; index < size; index++) *table[index] = NULL;
    }
    if (!tables->table(5, &table, &size)) return 0;
    *table[2] = start;
    *table[3] = end;
    *table[4] = push;
    *table[5] = pop;
    *table[10] = reg;
    *table[12] = create;
    line("loaded", NULL, version->version == 3 ? "3" : "(a wrong version)");
    return 1;
}
