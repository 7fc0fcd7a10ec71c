/* A simulated accelerator: devices, streams that are threads, events, and memory that the host
 * cannot touch.  What a loader does wrong with a real one shows here, at once and always:
 *
 *   - a copy reads its source when it runs, and not when it is issued, as DMA does: a slot that is
 *     used again too early gives wrong bytes;
 *   - memory that is not registered is copied when the copy is issued, and `staged` counts that;
 *   - device memory is PROT_NONE at the addresses that users see, 0xDB when it is fresh and 0xDD
 *     when it is freed: reading it on the host is a SIGSEGV, reading it too early or too late shows;
 *   - with `holds_pages`, registered memory is the pages that lay there then, as for DMA: where the
 *     host got others since (a hole was punched), the copy reads the old bytes;
 *   - `host_waits` counts each wait of the host, `faults` what real hardware would not survive: a
 *     copy beyond an allocation, a double free, memory unregistered below a copy.
 *
 * torch_backend.cpp and paddle_plugin.cc put it under the frameworks as they come from the package
 * index.  C++17 and Linux; each library that includes this has a simulation of its own. */
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sim {

using Hold = std::lock_guard<std::mutex>;

inline long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* What happened, for tests to compare. */
struct Counts {
    std::atomic<uint64_t> copies{0}, bytes{0}, staged{0}, host_waits{0}, faults{0}, allocs{0},
        frees{0}, used{0}, streams{0}, events{0};
    std::mutex lock;
    std::vector<std::string> told; /* the first faults */

    void fault(const std::string &what) {
        ++faults;
        Hold hold(lock);
        if (told.size() < 100) told.push_back(what);
        if (setting("SIMDEV_ABORT", 0)) {
            fprintf(stderr, "simdev: %s\n", what.c_str());
            abort();
        }
    }
};

/* As CUDA's: waiting means waiting for the record that was newest when the wait was issued. */
class Event {
  public:
    uint64_t ask() {
        Hold hold(lock_);
        return ++asked_;
    }
    uint64_t newest() {
        Hold hold(lock_);
        return asked_;
    }
    void reach(uint64_t record) {
        {
            Hold hold(lock_);
            if (reached_ < record) reached_ = record;
        }
        changed_.notify_all();
    }
    bool is_done() {
        Hold hold(lock_);
        return reached_ >= asked_;
    }
    void wait(uint64_t record) {
        std::unique_lock<std::mutex> hold(lock_);
        changed_.wait(hold, [&] { return reached_ >= record; });
    }

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    uint64_t asked_ = 0, reached_ = 0; /* records issued, and passed */
};

using EventRef = std::shared_ptr<Event>;

/* Runs what is pushed, in order, in a thread of its own. */
class Stream {
  public:
    const int device;

    explicit Stream(int device) : device(device), thread_([this] { run(); }) {}
    ~Stream() {
        {
            Hold hold(lock_);
            stops_ = true;
        }
        work_.notify_all();
        thread_.join();
    }
    void push(std::function<void()> step) {
        {
            Hold hold(lock_);
            steps_.push_back(std::move(step));
        }
        work_.notify_one();
    }
    void record(const EventRef &event) {
        const uint64_t record = event->ask();
        push([event, record] { event->reach(record); });
    }
    void wait_event(const EventRef &event) {
        const uint64_t record = event->newest();
        push([event, record] { event->wait(record); });
    }
    bool is_idle() {
        Hold hold(lock_);
        return steps_.empty() && !is_busy_;
    }
    void synchronize() {
        std::unique_lock<std::mutex> hold(lock_);
        idle_.wait(hold, [&] { return steps_.empty() && !is_busy_; });
    }

  private:
    void run() {
        /* A device keeps time whatever the processors do, as far as that is permitted. */
        prctl(PR_SET_TIMERSLACK, 1000UL);
        setpriority(PRIO_PROCESS, id_t(syscall(SYS_gettid)), -20);
        std::unique_lock<std::mutex> hold(lock_);
        for (;;) {
            work_.wait(hold, [&] { return stops_ || !steps_.empty(); });
            if (steps_.empty()) return;
            auto step = std::move(steps_.front());
            steps_.pop_front();
            is_busy_ = true;
            hold.unlock();
            step();
            step = nullptr; /* what it holds goes before the stream counts as idle */
            hold.lock();
            is_busy_ = false;
            if (steps_.empty()) idle_.notify_all();
        }
    }

    std::mutex lock_;
    std::condition_variable work_, idle_;
    std::deque<std::function<void()>> steps_;
    bool is_busy_ = false, stops_ = false;
    std::thread thread_; /* last: it uses the others */
};

/* The memory of one device: a memory file that is mapped twice, for users without access, and for
 * the threads of streams. */
class Memory {
  public:
    Memory(size_t nbytes, Counts &counts) : nbytes_(nbytes), counts_(counts) {
        const int fd = memfd_create("simdev", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, off_t(nbytes))) fail();
        base_ = map(fd, PROT_NONE);
        alias_ = map(fd, PROT_READ | PROT_WRITE);
        close(fd);
        holes_[0] = nbytes;
    }
    bool has(const void *at) const { return at >= base_ && at < base_ + nbytes_; }

    void *allocate(size_t wanted) {
        const size_t nbytes = ((wanted ? wanted : 1) + 511) / 512 * 512;
        Hold hold(lock_);
        for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
            if (hole->second < nbytes) continue;
            const size_t at = hole->first, left = hole->second - nbytes;
            holes_.erase(hole);
            if (left) holes_[at + nbytes] = left;
            live_[at] = nbytes;
            ++counts_.allocs;
            counts_.used += nbytes;
            memset(alias_ + at, 0xDB, nbytes);
            return base_ + at;
        }
        return nullptr;
    }
    bool free(void *address) {
        Hold hold(lock_);
        const size_t at = size_t(static_cast<uint8_t *>(address) - base_);
        auto block = live_.find(at);
        if (block == live_.end()) {
            counts_.fault("memory is freed that is not allocated");
            return false;
        }
        const size_t nbytes = block->second;
        live_.erase(block);
        ++counts_.frees;
        counts_.used -= nbytes;
        memset(alias_ + at, 0xDD, nbytes);
        add_hole(at, nbytes);
        return true;
    }
    /* The address that a stream's thread uses for one that users see. */
    uint8_t *reach(const void *address, size_t nbytes) {
        Hold hold(lock_);
        const size_t at = size_t(static_cast<const uint8_t *>(address) - base_);
        auto block = live_.upper_bound(at);
        if (block == live_.begin() || (--block)->first + block->second < at + nbytes)
            counts_.fault("a copy of " + std::to_string(nbytes) + " bytes beyond an allocation");
        return alias_ + at;
    }

  private:
    static void fail() {
        perror("simdev");
        abort();
    }
    uint8_t *map(int fd, int access) const {
        void *at = mmap(nullptr, nbytes_, access, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (at == MAP_FAILED) fail();
        return static_cast<uint8_t *>(at);
    }
    void add_hole(size_t at, size_t nbytes) {
        auto hole = holes_.emplace(at, nbytes).first;
        auto next = std::next(hole);
        if (next != holes_.end() && at + nbytes == next->first) {
            hole->second += next->second;
            holes_.erase(next);
        }
        if (hole == holes_.begin()) return;
        auto before = std::prev(hole);
        if (before->first + before->second != at) return;
        before->second += hole->second;
        holes_.erase(hole);
    }

    const size_t nbytes_;
    Counts &counts_;
    uint8_t *base_, *alias_;
    std::mutex lock_;
    std::map<size_t, size_t> live_, holes_; /* where -> bytes */
};

/* The pages that lie below some memory now, whatever the mapping has later: a pipe refers to them. */
class HeldPages {
  public:
    HeldPages(const void *address, size_t nbytes) : nbytes_(nbytes) {
        open(held_);
        open(seen_);
        iovec at{const_cast<void *>(address), nbytes};
        while (at.iov_len) {
            const ssize_t done = vmsplice(held_[1], &at, 1, 0);
            if (done <= 0) fail();
            at.iov_base = static_cast<uint8_t *>(at.iov_base) + done;
            at.iov_len -= size_t(done);
        }
    }
    HeldPages(const HeldPages &) = delete;
    ~HeldPages() {
        for (int fd : {held_[0], held_[1], seen_[0], seen_[1]}) close(fd);
    }
    void read(size_t from, void *to, size_t nbytes) {
        Hold hold(lock_);
        if (tee(held_[0], seen_[1], nbytes_, 0) != ssize_t(nbytes_)) fail();
        std::vector<uint8_t> all(nbytes_);
        for (size_t got = 0; got < nbytes_;) {
            const ssize_t done = ::read(seen_[0], all.data() + got, nbytes_ - got);
            if (done <= 0) fail();
            got += size_t(done);
        }
        memcpy(to, all.data() + from, nbytes);
    }

  private:
    [[noreturn]] static void fail() {
        perror("simdev: pages cannot be held");
        abort();
    }
    void open(int *ends) const {
        if (pipe2(ends, O_CLOEXEC) || fcntl(ends[1], F_SETPIPE_SZ, int(nbytes_)) < 0) fail();
    }

    const size_t nbytes_;
    std::mutex lock_;
    int held_[2], seen_[2];
};

/* All of it: made at its first use, and never destroyed, since streams run until the process ends. */
class Runtime {
  public:
    Counts counts;
    std::atomic<long> delay_us{setting("SIMDEV_DELAY_US", 2000)}; /* of a copy from the host */
    std::atomic<long> jitter_us{setting("SIMDEV_JITTER_US", 0)};  /* more, at most, at random */
    std::atomic<long> mib_per_s{setting("SIMDEV_MIB_PER_S", 0)};  /* 0: as fast as memcpy */
    std::atomic<long> holds_pages{0}; /* registered memory is its pages; a megabyte at most */
    std::atomic<uint64_t> small_us{0}; /* what copies of less took, which stand for other work */
    std::atomic<uint64_t> last_from{0}; /* where the last copy from the host read, if it was large */

    static Runtime &get() {
        static Runtime *the_one = new Runtime;
        return *the_one;
    }
    int device_count() const { return int(devices_.size()); }

    void *allocate(int device, size_t nbytes) { return devices_[size_t(device)]->allocate(nbytes); }
    bool free(void *address) {
        const int device = device_of(address);
        return device >= 0 && devices_[size_t(device)]->free(address);
    }
    int device_of(const void *address) const { /* -1: of the host */
        for (size_t i = 0; i < devices_.size(); ++i)
            if (devices_[i]->has(address)) return int(i);
        return -1;
    }
    uint8_t *reach(const void *address, size_t nbytes) {
        const int device = device_of(address);
        if (device < 0) return const_cast<uint8_t *>(static_cast<const uint8_t *>(address));
        return devices_[size_t(device)]->reach(address, nbytes);
    }

    Stream *make_stream(int device) {
        auto *made = new Stream(device);
        ++counts.streams;
        Hold hold(lock_);
        streams_.push_back(made);
        return made;
    }
    void end_stream(Stream *stream) {
        {
            Hold hold(lock_);
            for (auto &each : streams_)
                if (each == stream) {
                    each = streams_.back();
                    streams_.pop_back();
                    break;
                }
        }
        delete stream;
    }
    EventRef make_event() {
        ++counts.events;
        return std::make_shared<Event>();
    }
    void synchronize(int device) {
        std::vector<Stream *> found;
        {
            Hold hold(lock_);
            for (auto *stream : streams_)
                if (stream->device == device) found.push_back(stream);
        }
        for (auto *stream : found) stream->synchronize();
    }

    /* Registered memory of the host, as by cudaHostRegister.  False: some of it is already. */
    bool pin(const void *address, size_t nbytes) {
        const auto at = uintptr_t(address);
        Hold hold(lock_);
        auto next = pinned_.lower_bound(at);
        if (next != pinned_.end() && next->first < at + nbytes) return false;
        if (next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second.nbytes > at)
            return false;
        pinned_[at] = {nbytes, holds_pages ? std::make_shared<HeldPages>(address, nbytes) : nullptr};
        return true;
    }
    bool unpin(const void *address) { /* False: it is not registered */
        const auto at = uintptr_t(address);
        Hold hold(lock_);
        auto found = pinned_.find(at);
        if (found == pinned_.end()) return false;
        for (const auto &[from, nbytes] : reading_)
            if (from < at + found->second.nbytes && at < from + nbytes)
                counts.fault("memory is unregistered that a copy still reads");
        pinned_.erase(found);
        return true;
    }
    bool is_pinned(const void *address, size_t nbytes = 1) {
        Hold hold(lock_);
        return is_pinned_now(uintptr_t(address), nbytes);
    }

    void copy_now(void *to, const void *from, size_t nbytes) {
        memcpy(reach(to, nbytes), reach(from, nbytes), nbytes);
        ++counts.copies;
        counts.bytes += nbytes;
    }
    void copy_on(Stream *stream, void *to, const void *from, size_t nbytes) {
        const bool is_from_host = device_of(from) < 0;
        if (is_from_host && nbytes >= LARGE) last_from = uintptr_t(from);
        if (!is_from_host) {
            const bool waits = device_of(to) < 0 && !is_pinned(to, nbytes);
            stream->push([=, this] { copy_now(to, from, nbytes); });
            if (!waits) return;
            ++counts.host_waits; /* as CUDA does where memory of the host is not registered */
            stream->synchronize();
        } else if (auto read = begin_reading(from, nbytes); read != reading_.end()) {
            const Pinned pinned = pinned_at(from);
            stream->push([=, this] {
                travel(nbytes);
                copy_pinned(to, from, nbytes, pinned);
                Hold hold(lock_);
                reading_.erase(read);
            });
        } else {
            ++counts.staged;
            const auto *bytes = static_cast<const uint8_t *>(from);
            auto kept = std::make_shared<std::vector<uint8_t>>(bytes, bytes + nbytes);
            stream->push([=, this] {
                travel(nbytes);
                copy_now(to, kept->data(), nbytes);
            });
        }
    }

  private:
    static constexpr size_t LARGE = 1024;
    using Reading = std::multimap<uintptr_t, size_t>;
    struct Pinned {
        size_t nbytes;
        std::shared_ptr<HeldPages> pages; /* none: they are not held */
        uintptr_t at = 0;
    };

    Pinned pinned_at(const void *address) {
        Hold hold(lock_);
        auto found = std::prev(pinned_.upper_bound(uintptr_t(address)));
        return {found->second.nbytes, found->second.pages, found->first};
    }
    void copy_pinned(void *to, const void *from, size_t nbytes, const Pinned &pinned) {
        if (!pinned.pages) return copy_now(to, from, nbytes);
        std::vector<uint8_t> bytes(nbytes);
        pinned.pages->read(uintptr_t(from) - pinned.at, bytes.data(), nbytes);
        copy_now(to, bytes.data(), nbytes);
    }

    Runtime() {
        const long count = setting("SIMDEV_DEVICES", 4), mib = setting("SIMDEV_MIB", 1024);
        for (long i = 0; i < count; ++i)
            devices_.push_back(std::make_unique<Memory>(size_t(mib) << 20, counts));
    }
    bool is_pinned_now(uintptr_t at, size_t nbytes) {
        auto next = pinned_.upper_bound(at);
        if (next == pinned_.begin()) return false;
        --next;
        return next->first + next->second.nbytes >= at + nbytes;
    }
    /* end(): the memory is not registered. */
    Reading::iterator begin_reading(const void *from, size_t nbytes) {
        Hold hold(lock_);
        if (!is_pinned_now(uintptr_t(from), nbytes)) return reading_.end();
        return reading_.emplace(uintptr_t(from), nbytes);
    }
    void travel(size_t nbytes) {
        thread_local uint32_t random = 0x9E3779B9u ^ uint32_t(uintptr_t(&random));
        random = random * 1664525u + 1013904223u;
        const long more = jitter_us ? long(random >> 8) % (jitter_us + 1) : 0;
        const long rate = mib_per_s;
        const long us = delay_us + more + (rate ? long(double(nbytes) / 1048576 / rate * 1e6) : 0);
        const auto begun = std::chrono::steady_clock::now();
        if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begun;
        if (nbytes < LARGE) small_us += uint64_t(took.count());
    }

    std::vector<std::unique_ptr<Memory>> devices_;
    std::mutex lock_;
    std::vector<Stream *> streams_;
    std::map<uintptr_t, Pinned> pinned_; /* registered, by where it begins */
    Reading reading_;                    /* registered memory that copies still read */
};

} // namespace sim

/* What tests call, by ctypes. */
#define SIMDEV_API extern "C" __attribute__((visibility("default"), used)) inline

SIMDEV_API int simdev_pin(const void *at, size_t nbytes) {
    return sim::Runtime::get().pin(at, nbytes) ? 0 : 712; /* already registered, as CUDA says */
}
SIMDEV_API int simdev_unpin(const void *at) {
    return sim::Runtime::get().unpin(at) ? 0 : 713; /* not registered */
}
SIMDEV_API void simdev_set(const char *name, long value) {
    auto &runtime = sim::Runtime::get();
    const std::string wanted = name;
    if (wanted == "delay_us") runtime.delay_us = value;
    if (wanted == "jitter_us") runtime.jitter_us = value;
    if (wanted == "mib_per_s") runtime.mib_per_s = value;
    if (wanted == "holds_pages") runtime.holds_pages = value;
}
SIMDEV_API uint64_t simdev_count(const char *name) {
    const auto &counts = sim::Runtime::get().counts;
    const std::map<std::string, uint64_t> all = {
        {"copies", counts.copies},         {"bytes", counts.bytes},   {"staged", counts.staged},
        {"host_waits", counts.host_waits}, {"faults", counts.faults}, {"allocs", counts.allocs},
        {"frees", counts.frees},           {"used", counts.used},     {"streams", counts.streams},
        {"events", counts.events},         {"last_from", sim::Runtime::get().last_from},
        {"small_us", sim::Runtime::get().small_us}};
    const auto found = all.find(name);
    return found == all.end() ? UINT64_MAX : found->second;
}
/* Returns 0, or -1 where there were fewer faults. */
SIMDEV_API int simdev_fault(size_t number, char *text, size_t room) {
    auto &counts = sim::Runtime::get().counts;
    sim::Hold hold(counts.lock);
    if (number >= counts.told.size()) return -1;
    snprintf(text, room, "%s", counts.told[number].c_str());
    return 0;
}
SIMDEV_API void simdev_synchronize(void) { /* for tests alone: no host wait is counted */
    for (int i = 0; i < sim::Runtime::get().device_count(); ++i)
        sim::Runtime::get().synchronize(i);
    sim::Runtime::get().synchronize(-1); /* streams of no device free memory */
}
