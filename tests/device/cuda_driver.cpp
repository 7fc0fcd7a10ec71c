/* A stand-in for CUDA's driver (libcuda.so.1) with the calls that lock pages of the host, for
 * cuda-bindings as it is.  It keeps the book that the real one keeps: whole pages, no overlap, no
 * range that is not registered.  FAKE_CUDA_FAILS=n: the n-th registration fails, for want of
 * memory; FAKE_CUDA_ABSENT=1: there is no device.  Source: the CUDA driver API's documentation. */
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {
enum Result {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
};

struct Book {
    std::mutex mutex;
    std::map<uintptr_t, size_t> ranges;
    long registered = 0, unregistered = 0, refused = 0;
};

Book book;
thread_local int depth = 0; /* contexts pushed in this thread */
int context;

long setting(const char *name) {
    const char *text = std::getenv(name);
    return text ? std::atol(text) : 0;
}

Result refuse(Result why) {
    ++book.refused;
    return why;
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API Result cuInit(unsigned) { return setting("FAKE_CUDA_ABSENT") ? NO_DEVICE : OK; }
API Result cuDriverGetVersion(int *version) { return *version = 13000, OK; }
API Result cuDevicePrimaryCtxRetain(void **made, int device) {
    if (device) return INVALID_DEVICE;
    *made = &context;
    return OK;
}
API Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
API Result cuCtxPushCurrent_v2(void *) { return ++depth, OK; }
API Result cuCtxPopCurrent_v2(void **popped) {
    if (!depth) return INVALID_CONTEXT;
    --depth;
    if (popped) *popped = &context;
    return OK;
}

API Result cuMemHostRegister_v2(void *start, size_t nbytes, unsigned) {
    std::lock_guard<std::mutex> hold(book.mutex);
    const uintptr_t at = (uintptr_t)start;
    if (!depth) return refuse(INVALID_CONTEXT);
    if (!nbytes || at % 4096 || nbytes % 4096) return refuse(INVALID_VALUE);
    auto next = book.ranges.lower_bound(at);
    if (next != book.ranges.end() && next->first < at + nbytes) return refuse(ALREADY_REGISTERED);
    if (next != book.ranges.begin()) {
        --next;
        if (next->first + next->second > at) return refuse(ALREADY_REGISTERED);
    }
    if (book.registered + book.refused + 1 == setting("FAKE_CUDA_FAILS"))
        return refuse(OUT_OF_MEMORY);
    book.ranges[at] = nbytes;
    ++book.registered;
    return OK;
}

API Result cuMemHostUnregister(void *start) {
    std::lock_guard<std::mutex> hold(book.mutex);
    if (!depth) return refuse(INVALID_CONTEXT);
    if (!book.ranges.erase((uintptr_t)start)) return refuse(NOT_REGISTERED);
    ++book.unregistered;
    return OK;
}

API Result cuGetErrorName(Result, const char **text) { return *text = "FAKE", OK; }
API Result cuGetErrorString(Result, const char **text) { return *text = "a stand-in's error", OK; }

API Result cuGetProcAddress_v2(const char *name, void **found, int, uint64_t, int *status) {
    char text[200];
    *found = nullptr;
    for (const char *end : {"_v2", ""}) {
        if (std::strlen(name) + 4 > sizeof text) break;
        std::strcpy(text, name);
        std::strcat(text, end);
        Dl_info own;
        if (!dladdr((void *)&cuInit, &own)) break;
        void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if ((*found = dlsym(library, text))) break;
    }
    if (status) *status = *found ? 0 : 1;
    return *found ? OK : NOT_FOUND;
}
API Result cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}

/* For the test: what the book says. */
API long fake_cuda(const char *name) {
    std::lock_guard<std::mutex> hold(book.mutex);
    if (!std::strcmp(name, "registered")) return book.registered;
    if (!std::strcmp(name, "unregistered")) return book.unregistered;
    if (!std::strcmp(name, "refused")) return book.refused;
    if (!std::strcmp(name, "left")) return (long)book.ranges.size();
    long total = 0;
    for (auto &range : book.ranges) total += (long)range.second;
    return total;
}
