/* torch's device "simdev" (PrivateUse1) on the simulated accelerator: memory, copies on streams,
 * events, record_stream, registered memory.  Every other operator runs on the CPU by torch's own
 * fallback.  Written for torch 2.13; its interfaces for such backends change between versions. */
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "simdev.h"

namespace {

using namespace c10;
constexpr auto KIND = DeviceType::PrivateUse1;

sim::Runtime &runtime() { return sim::Runtime::get(); }

/* -- streams: number 0 of a device is its default stream ------------------------------------- */

class Streams {
  public:
    sim::Stream *get(DeviceIndex device, StreamId id) {
        sim::Hold hold(lock_);
        auto &made = made_[size_t(device)];
        while (made.size() <= size_t(id)) made.push_back(runtime().make_stream(device));
        return made[size_t(id)];
    }
    StreamId add(DeviceIndex device) {
        get(device, 0);
        sim::Hold hold(lock_);
        auto &made = made_[size_t(device)];
        made.push_back(runtime().make_stream(device));
        return StreamId(made.size() - 1);
    }

  private:
    std::mutex lock_;
    std::vector<std::vector<sim::Stream *>> made_{size_t(runtime().device_count())};
};

Streams &streams() {
    static auto *made = new Streams;
    return *made;
}

thread_local DeviceIndex the_device = 0;
thread_local std::vector<StreamId> the_streams;

StreamId &current(DeviceIndex device) {
    the_streams.resize(size_t(runtime().device_count()), 0);
    return the_streams[size_t(device)];
}
sim::Stream *stream_of(DeviceIndex device) { return streams().get(device, current(device)); }
sim::Stream *stream_of(const Stream &stream) {
    return streams().get(stream.device_index(), stream.id());
}

/* -- memory: freed in the order of the stream that allocated, behind those that were recorded --- */

struct Block {
    sim::Stream *stream;
    std::vector<sim::Stream *> users;
};
std::mutex blocks_lock;
std::map<void *, Block> blocks;

void release(void *address) {
    if (!address) return;
    Block block;
    {
        sim::Hold hold(blocks_lock);
        block = blocks[address];
        blocks.erase(address);
    }
    if (block.users.empty()) return block.stream->push([address] { runtime().free(address); });
    /* No stream of the user waits for that, as with CUDA's allocator. */
    static auto *frees = runtime().make_stream(-1);
    block.users.push_back(block.stream);
    for (auto *user : block.users) {
        auto passed = std::make_shared<sim::Event>();
        user->record(passed);
        frees->wait_event(passed);
    }
    frees->push([address] { runtime().free(address); });
}

struct DeviceMemory final : Allocator {
    DataPtr allocate(size_t nbytes) override {
        void *made = nbytes ? runtime().allocate(the_device, nbytes) : nullptr;
        if (nbytes && !made) { /* frees may wait in streams */
            runtime().synchronize(the_device);
            runtime().synchronize(-1);
            made = runtime().allocate(the_device, nbytes);
        }
        TORCH_CHECK(!nbytes || made, "simdev: out of memory");
        if (made) {
            sim::Hold hold(blocks_lock);
            blocks[made] = {stream_of(the_device), {}};
        }
        return {made, made, &release, Device(KIND, the_device)};
    }
    DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void *to, const void *from, size_t nbytes) const override {
        runtime().copy_now(to, from, nbytes);
    }
} device_memory;

void unpin(void *address) {
    runtime().unpin(address);
    free(address);
}

struct HostMemory final : at::HostAllocator {
    DataPtr allocate(size_t nbytes) override {
        void *made = nullptr;
        if (nbytes) {
            TORCH_CHECK(!posix_memalign(&made, 4096, nbytes));
            runtime().pin(made, nbytes);
        }
        return {made, made, &unpin, Device(kCPU)};
    }
    DeleterFnPtr raw_deleter() const override { return &unpin; }
    void copy_data(void *to, const void *from, size_t nbytes) const override {
        memcpy(to, from, nbytes);
    }
    bool record_event(void *, void *, Stream) override { return true; }
    void empty_cache() override {}
    at::HostStats get_stats() override { return {}; }
    void reset_accumulated_stats() override {}
    void reset_peak_stats() override {}
} host_memory;

/* -- what torch asks of a device ------------------------------------------------------------------ */

struct Guard final : impl::DeviceGuardImplInterface {
    static constexpr DeviceType static_type = KIND;
    Guard() = default;
    explicit Guard(DeviceType) {}

    static Stream named(DeviceIndex device, StreamId id) {
        return Stream(Stream::UNSAFE, Device(KIND, device), id);
    }
    static DeviceIndex index_of(Device device) {
        return device.index() < 0 ? the_device : device.index();
    }
    static sim::EventRef &event(void *event) { return *static_cast<sim::EventRef *>(event); }

    DeviceType type() const override { return KIND; }
    DeviceIndex deviceCount() const noexcept override {
        return DeviceIndex(runtime().device_count());
    }
    Device getDevice() const override { return Device(KIND, the_device); }
    void setDevice(Device device) const override { uncheckedSetDevice(device); }
    void uncheckedSetDevice(Device device) const noexcept override {
        if (device.index() >= 0) the_device = device.index();
    }
    Device exchangeDevice(Device device) const override {
        const auto before = the_device;
        uncheckedSetDevice(device);
        return Device(KIND, before);
    }
    Stream getStream(Device device) const override {
        return named(index_of(device), current(index_of(device)));
    }
    Stream getDefaultStream(Device device) const override { return named(index_of(device), 0); }
    Stream getNewStream(Device device, int = 0) const override {
        return named(index_of(device), streams().add(index_of(device)));
    }
    Stream getStreamFromGlobalPool(Device device, bool = false) const override {
        return getNewStream(device);
    }
    Stream exchangeStream(Stream stream) const override {
        const auto device = stream.device_index();
        const auto before = current(device);
        current(device) = stream.id();
        return named(device, before);
    }
    bool queryStream(const Stream &stream) const override { return stream_of(stream)->is_idle(); }
    void synchronizeStream(const Stream &stream) const override {
        ++runtime().counts.host_waits;
        stream_of(stream)->synchronize();
    }
    void synchronizeDevice(const DeviceIndex device) const override {
        ++runtime().counts.host_waits;
        runtime().synchronize(device < 0 ? the_device : device);
    }
    void record(void **event_, const Stream &stream, const DeviceIndex,
                const EventFlag) const override {
        if (!*event_) *event_ = new sim::EventRef(runtime().make_event());
        stream_of(stream)->record(event(*event_));
    }
    void block(void *event_, const Stream &stream) const override {
        if (event_) stream_of(stream)->wait_event(event(event_));
    }
    bool queryEvent(void *event_) const override { return !event_ || event(event_)->is_done(); }
    void synchronizeEvent(void *event_) const override {
        if (!event_) return;
        ++runtime().counts.host_waits;
        event(event_)->wait(event(event_)->newest());
    }
    void destroyEvent(void *event_, const DeviceIndex) const noexcept override {
        delete static_cast<sim::EventRef *>(event_);
    }
    void recordDataPtrOnStream(const DataPtr &memory, const Stream &stream) const override {
        sim::Hold hold(blocks_lock);
        auto found = blocks.find(memory.get_context());
        if (found != blocks.end() && found->second.stream != stream_of(stream))
            found->second.users.push_back(stream_of(stream));
    }
};

struct Hooks final : at::PrivateUse1HooksInterface {
    void init() const override {}
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    DeviceIndex deviceCount() const override { return DeviceIndex(runtime().device_count()); }
    void setCurrentDevice(DeviceIndex device) const override { the_device = device; }
    DeviceIndex getCurrentDevice() const override { return the_device; }
    DeviceIndex exchangeDevice(DeviceIndex device) const override {
        return std::exchange(the_device, device);
    }
    DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
        return exchangeDevice(device);
    }
    at::Allocator *getPinnedMemoryAllocator() const override { return &host_memory; }
    bool isPinnedPtr(const void *address) const override { return runtime().is_pinned(address); }
    Device getDeviceFromPtr(void *address) const override {
        const int device = runtime().device_of(address);
        TORCH_CHECK(device >= 0, "not memory of simdev");
        return Device(KIND, DeviceIndex(device));
    }
};

/* -- operators ------------------------------------------------------------------------------------ */

at::Tensor empty(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout>,
                 std::optional<Device> device, std::optional<bool>,
                 std::optional<MemoryFormat> format) {
    const DeviceGuard guard(device_or_default(device));
    return at::detail::empty_generic(size, &device_memory, DispatchKeySet(DispatchKey::PrivateUse1),
                                     dtype_or_default(dtype), format);
}

at::Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                         std::optional<Layout>, std::optional<Device> device, std::optional<bool>) {
    const DeviceGuard guard(device_or_default(device));
    return at::detail::empty_strided_generic(size, stride, &device_memory,
                                             DispatchKeySet(DispatchKey::PrivateUse1),
                                             dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking);

at::Tensor span_of(const at::Tensor &tensor) { /* all bytes from its first element to its last */
    const size_t nbytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                           tensor.element_size());
    const auto whole = tensor.is_conj() ? tensor.conj() : tensor;
    return whole.as_strided({int64_t(nbytes / tensor.element_size())}, {1}, whole.storage_offset());
}

at::Tensor on_host(const at::Tensor &tensor) {
    const auto from = span_of(tensor);
    const auto flat = at::empty(from.sizes(), from.options().device(kCPU));
    copy_from(from, flat, false);
    const auto made = flat.as_strided(tensor.sizes(), tensor.strides(), 0);
    return tensor.is_conj() ? made.conj() : made;
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking) {
    const bool is_plain = from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
                          from.is_non_overlapping_and_dense() && from.strides() == to.strides() &&
                          from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
    if (!is_plain) { /* by way of the host, as seldom as this is needed */
        const auto values = from.is_cpu() ? from : on_host(from);
        if (to.is_cpu()) return const_cast<at::Tensor &>(to).copy_(values), to;
        auto made = on_host(to); /* with what lies between its elements */
        made.copy_(values);
        return copy_from(span_of(made), span_of(to), false), to;
    }
    const Device device = to.is_cpu() ? from.device() : to.device();
    const DeviceGuard guard(device);
    auto *stream = stream_of(device.index());
    if (from.nbytes()) runtime().copy_on(stream, to.data_ptr(), from.data_ptr(), from.nbytes());
    if (!non_blocking) {
        ++runtime().counts.host_waits;
        stream->synchronize();
    }
    return to;
}

at::Tensor copy_and_resize(const at::Tensor &from, const at::Tensor &to) {
    const_cast<at::Tensor &>(to).resize_(from.sizes());
    return copy_from(from, to, false);
}

const at::Tensor &resize(const at::Tensor &tensor, SymIntArrayRef size,
                         std::optional<MemoryFormat>) {
    const auto extents = C10_AS_INTARRAYREF_SLOW(size);
    const size_t nbytes = at::detail::computeStorageNbytesContiguous(
        extents, tensor.element_size(), size_t(tensor.storage_offset()));
    if (tensor.storage().nbytes() < nbytes) { /* what was there is not kept */
        const DeviceGuard guard(tensor.device());
        auto *storage = tensor.storage().unsafeGetStorageImpl();
        storage->set_data_ptr_noswap(device_memory.allocate(nbytes));
        storage->set_nbytes(nbytes);
    }
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(extents);
    return tensor;
}

at::Scalar scalar(const at::Tensor &tensor) { return tensor.cpu().item(); }

at::Tensor as_strided(const at::Tensor &tensor, SymIntArrayRef size, SymIntArrayRef stride,
                      std::optional<SymInt> offset) {
    std::optional<int64_t> at_element;
    if (offset) at_element = offset->expect_int();
    return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(size),
                                             C10_AS_INTARRAYREF_SLOW(stride), at_element);
}

at::Tensor view(const at::Tensor &tensor, SymIntArrayRef size) {
    return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

void record_stream(at::Tensor &tensor, Stream stream) {
    Guard().recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

void run_on_cpu(const OperatorHandle &op, torch::jit::Stack *stack) {
    at::native::cpu_fallback(op, stack);
}

} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_and_resize);
    m.impl("_local_scalar_dense", scalar);
    m.impl("as_strided", as_strided);
    m.impl("resize_", resize); /* without it the fallback calls itself */
    m.impl("view", view);
    m.impl("record_stream", record_stream);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

namespace {
struct Registration {
    Registration() {
        SetAllocator(KIND, &device_memory);
        at::setHostAllocator(KIND, &host_memory);
        at::RegisterPrivateUse1HooksInterface(new Hooks);
        c10::register_privateuse1_backend("simdev");
    }
} registration;
} // namespace
