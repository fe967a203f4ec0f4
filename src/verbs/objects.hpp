// What stands behind the pointers that programs hold: each object starts with its public struct, so
// that a pointer to one is a pointer to the other. Created and destroyed by the call pair of its
// name.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/completion_queue.hpp"
#include "host/host.hpp"
#include "process/event_counter.hpp"
#include "process/process.hpp"
#include "verbs/abi.hpp"

namespace feroce::verbs {

// rdma-core's providers look at the word behind ibv_device (`ops`) to tell their devices from
// others; ours is null. The rest keeps the size of what they know as verbs_device.
struct Device {
    ibv_device base{};
    const void* ops = nullptr;
    int reference_count = 0;
    void* list_entry[2] = {};
    void* sysfs = nullptr;
    std::uint64_t core_support = 0;
    host::Interface interface;
    std::uint64_t guid = 0;  // Host order.
    int index = 0;
};

// Events about one object: how many were handed out and not yet acknowledged. Destroying the object
// waits for the rest. Guarded by its context's (completion events: its channel's) mutex.
struct EventAccount {
    std::uint32_t delivered = 0;
    std::uint32_t acknowledged = 0;
};

struct Context {
    verbs_context base{};
    Device* device = nullptr;
    process::Process* process = nullptr;
    std::uint32_t mtu = 1024;               // Largest IB MTU that the interface carries.
    std::atomic<std::uint32_t> objects{0};  // All that must be gone before it can be closed.
    // Of these, for the state page.
    std::atomic<std::uint32_t> pds{0}, cqs{0}, regions{0}, srqs{0};

    std::mutex mutex;  // Guards everything below.
    process::Change acknowledged;
    std::deque<ibv_async_event> events;
    process::EventCounter event_counter;
    std::vector<Gid> gids;  // By GID index; an empty entry is zero.
    bool port_up = true;
};

struct Pd {
    ibv_pd base{};
    PdId id;
    Pd* parent = nullptr;                 // Of a parent domain: the domain it stands for.
    bool imported = false;                // Another object owns the domain.
    std::atomic<std::uint32_t> users{0};  // Parent domains and address handles.
};

struct Mr {
    ibv_mr base{};
    std::uint64_t iova = 0;
    std::uint32_t access = 0;
    struct Dm* dm = nullptr;
};

struct Mw {
    ibv_mw base{};
};

// The memory itself; an imported Dm has the same block as the original.
struct DmBlock {
    std::vector<std::byte> bytes;
    std::byte* start = nullptr;  // Aligned as asked for.
    std::size_t length = 0;
};

struct Dm {
    ibv_dm base{};
    std::shared_ptr<DmBlock> block;
    std::atomic<std::uint32_t> users{0};
};

struct Td {
    ibv_td base{};
};

struct Xrcd {
    ibv_xrcd base{};
    std::uint32_t domain = 0;
    int fd = -1;  // The file that names the domain; -1 for a private one.
    std::uint64_t inode = 0;
    std::uint64_t filesystem = 0;
};

struct Cq;

struct Channel {
    ibv_comp_channel base{};
    std::mutex mutex;  // Guards the queue and the accounts of its completion queues.
    process::Change acknowledged;
    // Oldest first, and few. Not a deque, which allocates every so many: this is the data path.
    std::vector<Cq*> events;
    process::EventCounter counter;
};

struct Cq {
    ibv_cq_ex base{};
    std::unique_ptr<device::CompletionQueue> queue;
    std::atomic<std::uint32_t> users{0};
    EventAccount completion_events;
    EventAccount async_events;
    std::mutex poll_mutex;                        // Held from start_poll to end_poll.
    transport::Completion current{};              // What the read_* functions read.
    std::atomic<unsigned> taken_without_look{0};  // Polls; two at once may count as one.
    std::uint64_t wall_clock_offset_ns = 0;
};

// Every shared receive queue of an engine is one of these, so an engine's event finds its Srq.
struct SharedQueue final : transport::ReceiveQueue {
    SharedQueue(struct Srq& srq, PdId pd, std::uint32_t wr_max, std::uint32_t sge_max)
        : ReceiveQueue(pd, wr_max, sge_max), owner(srq) {}
    struct Srq& owner;
};

struct Srq {
    ibv_srq base{};
    std::unique_ptr<SharedQueue> queue;
    SrqNumber number;  // XRC only.
    Cq* cq = nullptr;  // XRC only.
    Xrcd* xrcd = nullptr;
    std::atomic<std::uint32_t> users{0};
    EventAccount async_events;
};

struct Ah {
    ibv_ah base{};
    transport::Path path;
};

// Requests between ibv_wr_start and ibv_wr_complete.
struct Builder {
    struct Request {
        transport::SendWr wr;
        std::size_t first_sge = 0;  // In sges.
        std::size_t sge_count = 0;
        std::size_t first_inline = 0;  // In inline_bytes, if wr.inlined.
        std::size_t inline_length = 0;
    };
    std::mutex mutex;  // Held from start to complete or abort.
    std::vector<Request> requests;
    std::vector<mem::Sge> sges;
    std::vector<std::byte> inline_bytes;
    int error = 0;  // The first mistake; complete reports it and posts nothing.
};

struct Qp {
    ibv_qp_ex base{};
    transport::QueuePair* machine = nullptr;
    process::Shard* shard = nullptr;
    ibv_qp_cap capabilities{};
    bool signal_all = false;
    bool extended = false;  // Created with send_ops_flags: the ibv_wr_* calls may be used.
    std::uint32_t attribute_rate_limit = 0;
    Xrcd* xrcd = nullptr;
    EventAccount async_events;
    Builder builder;
};

template <class T, class Public>
T& object_of(Public* base) {
    return *reinterpret_cast<T*>(base);
}

inline Context& context_of(ibv_context* context) {
    auto* bytes = reinterpret_cast<char*>(context) - offsetof(verbs_context, context);
    return *reinterpret_cast<Context*>(bytes);
}
inline Pd& pd_of(ibv_pd* pd) {
    return object_of<Pd>(pd);
}
inline Cq& cq_of(ibv_cq* cq) {
    return object_of<Cq>(cq);
}
inline Cq& cq_of(ibv_cq_ex* cq) {
    return object_of<Cq>(cq);
}
inline Srq& srq_of(ibv_srq* srq) {
    return object_of<Srq>(srq);
}
inline Qp& qp_of(ibv_qp* qp) {
    return object_of<Qp>(qp);
}
inline Qp& qp_of(ibv_qp_ex* qp) {
    return object_of<Qp>(qp);
}
inline ibv_cq* public_cq(Cq& cq) {
    return ibv_cq_ex_to_cq(&cq.base);
}
inline process::Process& process_of(ibv_context* context) {
    return *context_of(context).process;
}

}  // namespace feroce::verbs
