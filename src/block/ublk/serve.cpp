// See serve.hpp.
#include "block/ublk/serve.hpp"

#include <sys/prctl.h>

#include <chrono>
#include <string>
#include <thread>

#include "block/patient_open.hpp"
#include "block/ublk/control.hpp"
#include "block/ublk/queue.hpp"
#include "block/ublk/requests.hpp"
#include "feroce/stop_signals.hpp"

namespace feroce::block::ublk {
namespace {

constexpr std::uint16_t kDepth = 128;
// The kernel cuts larger ones; each tag has a buffer of this.
constexpr std::uint32_t kRequestBytes = 128 << 10;
constexpr auto kGoodbye = std::chrono::seconds(2);
constexpr auto kPatience = std::chrono::seconds(10);

// A call that waits for requests of the device, which this thread serves meanwhile.
template <class Call>
rdma::Result<> beside(rdma::Loop& loop, const Call& call) {
    rdma::Result<> out;
    bool done = false;  // This thread's.
    std::thread thread([&] {
        out = call();
        loop.post([&done] { done = true; });
    });
    while (!done) loop.poll_or_wait();
    thread.join();
    return out;
}

rdma::Result<> serve_device(rdma::Loop& loop, Control& control, const Disk& disk,
                            std::uint32_t device,
                            const std::function<void(const std::string&)>& told) {
    auto known = control.set_params(device, params_of(disk.info(), kRequestBytes));
    if (!known) return known;
    auto queue = Queue::open(loop, disk, device, kDepth, kRequestBytes);
    if (!queue) return queue.error();
    auto started = beside(loop, [&] { return control.start(device); });
    if (started) {
        told(kDevicePrefix + std::to_string(device));
        loop.run();
    }
    // Also of one that did not start: it brings our commands back.
    const auto stopped = beside(loop, [&] { return control.stop(device); });
    const auto end = loop.after(kPatience);
    while (!(*queue)->over() && loop.now() < end) loop.poll_or_wait(end);
    return started ? stopped : started;
}

}  // namespace

rdma::Result<> serve(const DiskWish& wish, const std::function<void(const std::string&)>& told) {
    auto control = Control::open();
    if (!control) return control.error();
    // Short of memory, the kernel must not wait for writes to this very disk. Threads inherit it.
    (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    rdma::Loop loop;
    const rdma::StopSignals stops(loop);
    DiskClient client(loop);
    const auto open = [&] {
        return client.open(wish.session, wish.servers, wish.disk, wish.access, wish.options);
    };
    auto disk = loop.run(open_patiently(loop, open));
    if (!disk) return disk.error();
    auto device = (*control)->add(kDepth, kRequestBytes);
    if (!device) return device.error();
    auto served = serve_device(loop, **control, *disk, *device, told);
    auto removed = (*control)->remove(*device);
    (void)loop.run(disk->close().until(loop.after(kGoodbye)));
    return served ? removed : served;
}

}  // namespace feroce::block::ublk
