/* Paddle's device "simdev" (CustomPlace) on the simulated accelerator: a runtime without kernels.
 * Paddle loads it from the folder that CUSTOM_DEVICE_ROOT names, and runs operators on the CPU. */
#include "paddle/phi/backends/device_ext.h"

#include "simdev.h"

namespace {

thread_local int the_device = 0;

sim::Runtime &runtime() { return sim::Runtime::get(); }
sim::Stream *stream_of(C_Stream stream) { return reinterpret_cast<sim::Stream *>(stream); }
sim::EventRef &event_of(C_Event event) { return *reinterpret_cast<sim::EventRef *>(event); }
C_Status status(bool is_right) { return is_right ? C_SUCCESS : C_FAILED; }

/* -- devices ------------------------------------------------------------------------------------ */

C_Status begin() { return status(runtime().device_count() > 0); }
C_Status end() { return C_SUCCESS; }
C_Status set_device(const C_Device device) {
    the_device = device->id;
    return C_SUCCESS;
}
C_Status get_device(const C_Device device) {
    device->id = the_device;
    return C_SUCCESS;
}
C_Status end_device(const C_Device) { return C_SUCCESS; }
C_Status count_devices(size_t *count) {
    *count = size_t(runtime().device_count());
    return C_SUCCESS;
}
C_Status list_devices(size_t *ids) {
    for (int i = 0; i < runtime().device_count(); ++i) ids[i] = size_t(i);
    return C_SUCCESS;
}
C_Status measure_memory(const C_Device, size_t *total, size_t *left) {
    *total = size_t(sim::setting("SIMDEV_MIB", 1024)) << 20;
    *left = *total - size_t(runtime().counts.used);
    return C_SUCCESS;
}
C_Status smallest_chunk(const C_Device, size_t *nbytes) {
    *nbytes = 512;
    return C_SUCCESS;
}
C_Status wait_for_device(const C_Device device) {
    ++runtime().counts.host_waits;
    runtime().synchronize(device->id);
    return C_SUCCESS;
}

/* -- streams and events ------------------------------------------------------------------------- */

C_Status make_stream(const C_Device device, C_Stream *stream) {
    *stream = reinterpret_cast<C_Stream>(runtime().make_stream(device->id));
    return C_SUCCESS;
}
C_Status end_stream(const C_Device, C_Stream stream) {
    runtime().end_stream(stream_of(stream));
    return C_SUCCESS;
}
C_Status query_stream(const C_Device, C_Stream stream) {
    return status(stream_of(stream)->is_idle());
}
C_Status wait_for_stream(const C_Device, C_Stream stream) {
    ++runtime().counts.host_waits;
    stream_of(stream)->synchronize();
    return C_SUCCESS;
}
C_Status call_back(const C_Device device, C_Stream stream, C_Callback function, void *data) {
    const int id = device->id;
    stream_of(stream)->push([=] {
        C_Device_st here{id};
        C_Status came = C_SUCCESS;
        function(&here, stream, data, &came);
    });
    return C_SUCCESS;
}
C_Status make_event(const C_Device, C_Event *event) {
    *event = reinterpret_cast<C_Event>(new sim::EventRef(runtime().make_event()));
    return C_SUCCESS;
}
C_Status end_event(const C_Device, C_Event event) {
    delete &event_of(event);
    return C_SUCCESS;
}
C_Status record_event(const C_Device, C_Stream stream, C_Event event) {
    stream_of(stream)->record(event_of(event));
    return C_SUCCESS;
}
C_Status query_event(const C_Device, C_Event event) { return status(event_of(event)->is_done()); }
C_Status wait_for_event(const C_Device, C_Event event) {
    ++runtime().counts.host_waits;
    event_of(event)->wait(event_of(event)->newest());
    return C_SUCCESS;
}
C_Status stream_wait_event(const C_Device, C_Stream stream, C_Event event) {
    stream_of(stream)->wait_event(event_of(event));
    return C_SUCCESS;
}

/* -- memory and copies -------------------------------------------------------------------------- */

C_Status allocate(const C_Device device, void **address, size_t nbytes) {
    *address = runtime().allocate(device->id, nbytes);
    return status(*address != nullptr);
}
C_Status free_memory(const C_Device, void *address, size_t) {
    return status(runtime().free(address));
}
C_Status fill(const C_Device, void *address, unsigned char value, size_t nbytes) {
    memset(runtime().reach(address, nbytes), value, nbytes);
    return C_SUCCESS;
}
C_Status allocate_on_host(const C_Device, void **address, size_t nbytes) {
    *address = nullptr;
    return status(!posix_memalign(address, 64, nbytes ? nbytes : 64));
}
C_Status free_on_host(const C_Device, void *address, size_t) {
    free(address);
    return C_SUCCESS;
}
/* A copy without a stream waits, as cudaMemcpy does. */
C_Status copy(const C_Device, void *to, const void *from, size_t nbytes) {
    ++runtime().counts.host_waits;
    runtime().copy_now(to, from, nbytes);
    return C_SUCCESS;
}
C_Status copy_on_stream(const C_Device device, C_Stream stream, void *to, const void *from,
                        size_t nbytes) {
    if (!stream) return copy(device, to, from, nbytes);
    runtime().copy_on(stream_of(stream), to, from, nbytes);
    return C_SUCCESS;
}
C_Status copy_across(const C_Device, const C_Device to_device, void *to, const void *from,
                     size_t nbytes) {
    return copy(to_device, to, from, nbytes);
}
C_Status copy_across_on_stream(const C_Device, const C_Device to_device, C_Stream stream, void *to,
                               const void *from, size_t nbytes) {
    return copy_on_stream(to_device, stream, to, from, nbytes);
}

} // namespace

extern "C" __attribute__((visibility("default"))) void InitPlugin(CustomRuntimeParams *params) {
    PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
    params->device_type = const_cast<char *>("simdev");
    params->sub_device_type = const_cast<char *>("simulated");
    auto *table = params->interface;
    memset(static_cast<void *>(table), 0, sizeof(C_DeviceInterface));

    table->initialize = begin;
    table->finalize = end;
    table->init_device = set_device;
    table->set_device = set_device;
    table->get_device = get_device;
    table->deinit_device = end_device;
    table->get_device_count = count_devices;
    table->get_device_list = list_devices;
    table->device_memory_stats = measure_memory;
    table->device_min_chunk_size = smallest_chunk;
    table->synchronize_device = wait_for_device;

    table->create_stream = make_stream;
    table->destroy_stream = end_stream;
    table->query_stream = query_stream;
    table->synchronize_stream = wait_for_stream;
    table->stream_add_callback = call_back;
    table->create_event = make_event;
    table->destroy_event = end_event;
    table->record_event = record_event;
    table->query_event = query_event;
    table->synchronize_event = wait_for_event;
    table->stream_wait_event = stream_wait_event;

    table->device_memory_allocate = allocate;
    table->device_memory_deallocate = free_memory;
    table->device_memory_set = fill;
    table->host_memory_allocate = allocate_on_host;
    table->host_memory_deallocate = free_on_host;
    table->unified_memory_allocate = allocate_on_host;
    table->unified_memory_deallocate = free_on_host;
    table->memory_copy_h2d = copy;
    table->memory_copy_d2h = copy;
    table->memory_copy_d2d = copy;
    table->memory_copy_p2p = copy_across;
    table->async_memory_copy_h2d = copy_on_stream;
    table->async_memory_copy_d2h = copy_on_stream;
    table->async_memory_copy_d2d = copy_on_stream;
    table->async_memory_copy_p2p = copy_across_on_stream;
}
