// What stands behind the pointers that programs hold: each object starts with its public struct, so
// that a pointer to one is a pointer to the other. Created and destroyed by the call pair of its
// name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/annotate.hpp"
#include "device/completion_queue.hpp"
#include "host/host.hpp"
#include "port/dma_buffer.hpp"
#include "process/device_memory.hpp"
#include "process/event_queue.hpp"
#include "process/gid_table.hpp"
#include "process/process.hpp"
#include "verbs/abi.hpp"

namespace feroce::verbs {

// What ibv_query_device promises beside counts of objects, which are process::Quotas and limits of
// the rooms below. Sizes are limits, not costs: a completion queue
// uses memory only as far as it was ever filled.
namespace limits {
inline constexpr std::uint32_t kWorkRequests = 16384;
inline constexpr std::uint32_t kSges = transport::kSgeMax;
inline constexpr int kCompletions = 4 * 1024 * 1024;  // libfabric sizes queues by its peers.
inline constexpr std::uint32_t kInlineBytes = 1024;
inline constexpr int kReadAtomics = 128;  // librdmacm keeps it in eight bits.
inline constexpr int kGidTableLength = 64;
inline constexpr std::uint32_t kMessageBytes = transport::kMessageBytesMax;
inline constexpr std::size_t kDeviceMemoryBytes = 64 * 1024 * 1024;
}  // namespace limits

// rdma-core's providers look at the word behind ibv_device (`ops`) to tell their devices from
// others; ours is null. The rest keeps the size of what they know as verbs_device.
struct Device {
    ibv_device base{};
    const void* ops = nullptr;
    int reference_count = 0;
    void* list_entry[2] = {};
    void* sysfs = nullptr;
    std::uint64_t core_support = 0;
    // As everything here set once, before anybody sees the device. What changes of an interface
    // (addresses, MTU, link) is asked of the host.
    std::uint32_t interface_index = 0;
    std::uint64_t guid = 0;  // Host order.
    int index = 0;
    std::string interface_name = {};
};

struct SameAsyncEvent {  // Of one object, or of the port.
    bool operator()(const ibv_async_event& a, const ibv_async_event& b) const {
        return a.event_type == b.event_type;
    }
};
using AsyncEvents = process::EventQueue<ibv_async_event, SameAsyncEvent>;
using ChannelEvents = process::EventQueue<struct Cq*>;

struct Context : annotate::ReadByPrograms {
    verbs_context base{};
    Device* device = nullptr;
    process::Process* process = nullptr;
    std::uint32_t mtu = 1024;               // Largest IB MTU that the interface carries.
    std::atomic<std::uint32_t> objects{0};  // All that must be gone before it can be closed.
    // Of these, for the state page.
    std::atomic<std::uint32_t> pds{0}, cqs{0}, regions{0}, srqs{0};

    AsyncEvents events;
    process::GidTable gids{limits::kGidTableLength - 1};
    bool port_up = true;  // Guarded by the Instance's mutex.
};

struct Pd : annotate::ReadByPrograms {
    ibv_pd base{};
    PdId id;
    Pd* parent = nullptr;     // Of a parent domain: the domain it stands for.
    bool imported = false;    // Another object owns the domain.
    bool one_thread = false;  // With a thread domain: its objects are used by one thread at a time.
    std::atomic<std::uint32_t> users{0};  // Parent domains and address handles.
};

struct Mr : annotate::ReadByPrograms {
    ibv_mr base{};
    std::uint64_t iova = 0;
    std::uint32_t access = 0;
    struct Dm* dm = nullptr;
    std::unique_ptr<port::DmaBuffer> dma_buffer;  // Null: not a region of one.
    std::shared_ptr<mem::FarMemory> far;          // Null: memory that the CPU reaches.
};

struct Mw : annotate::ReadByPrograms {
    ibv_mw base{};
};

struct Dm : annotate::ReadByPrograms {
    ibv_dm base{};
    std::shared_ptr<process::DeviceBlock> block;  // An imported Dm has that of the original.
    std::atomic<std::uint32_t> users{0};
};

struct Td : annotate::ReadByPrograms {
    ibv_td base{};
};

struct Xrcd : annotate::ReadByPrograms {
    ibv_xrcd base{};
    std::uint32_t domain = 0;
};

struct Cq;

struct Channel : annotate::ReadByPrograms {
    ibv_comp_channel base{};
    // Guards base.refcnt, how many completion queues use it, and their comp_events_completed.
    std::mutex mutex;
    ChannelEvents events;
};

struct Cq : annotate::ReadByPrograms {
    ibv_cq_ex base{};
    std::unique_ptr<device::CompletionQueue> queue;
    std::atomic<std::uint32_t> users{0};
    ChannelEvents::AccountFor<1> completion_events;
    AsyncEvents::AccountFor<1> async_events;      // CQ_ERR.
    std::mutex poll_mutex;                        // Held from start_poll to end_poll.
    transport::Completion current{};              // What the read_* functions read.
    std::atomic<unsigned> taken_without_look{0};  // Polls; two at once may count as one.
    std::uint64_t wall_clock_offset_ns = 0;
    bool one_thread = false;        // Promised: one thread at a time. Only lint asks.
    std::atomic<bool> late{false};  // The last poll hid completions: an injected fault; a hint.
};

// Every shared receive queue of an engine is one of these, so an engine's event finds its Srq.
struct SharedQueue final : transport::ReceiveQueue {
    SharedQueue(struct Srq& srq, PdId pd, std::uint32_t wr_max, std::uint32_t sge_max)
        : ReceiveQueue(pd, wr_max, sge_max), owner(srq) {}
    struct Srq& owner;
};

struct Srq : annotate::ReadByPrograms {
    ibv_srq base{};
    std::unique_ptr<SharedQueue> queue;
    SrqNumber number;  // XRC only.
    Cq* cq = nullptr;  // XRC only.
    Xrcd* xrcd = nullptr;
    std::atomic<std::uint32_t> users{0};
    AsyncEvents::AccountFor<2> async_events;  // SRQ_ERR, SRQ_LIMIT_REACHED.
};

struct Ah : annotate::ReadByPrograms {
    ibv_ah base{};
    transport::Path path;
};

// Requests between ibv_wr_start and ibv_wr_complete.
struct Builder {
    // Where the data of a request is, as long as the vectors may still grow.
    struct Data {
        std::size_t first_sge = 0;  // In sges.
        std::size_t sge_count = 0;
        std::size_t first_inline = 0;  // In inline_bytes, if the request is inlined.
        std::size_t inline_length = 0;
    };
    std::mutex mutex;  // Held from start to complete or abort.
    std::vector<transport::SendWr> requests;
    std::vector<Data> data;  // One for each request.
    std::vector<mem::Sge> sges;
    std::vector<std::byte> inline_bytes;
    int error = 0;  // The first mistake; complete reports it and posts nothing.
};

struct Qp : annotate::ReadByPrograms {
    ibv_qp_ex base{};
    transport::QueuePair* machine = nullptr;
    process::Shard* shard = nullptr;
    ibv_qp_cap capabilities{};
    bool signal_all = false;
    bool extended = false;  // Created with send_ops_flags: the ibv_wr_* calls may be used.
    Xrcd* xrcd = nullptr;
    AsyncEvents::AccountFor<6> async_events;  // As many types of transport::AsyncEventType.
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
