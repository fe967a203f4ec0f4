#include "rdmacm/id.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "process/undisturbed.hpp"
#include "rdmacm/address.hpp"
#include "rdmacm/devices.hpp"
#include "rdmacm/events.hpp"

// In libibverbs, FEROCE_1.
extern "C" feroce::process::CmService* feroce_cm_service(bool start);
extern "C" bool feroce_lint_is_on();
extern "C" void feroce_lint_cm_events(std::uint32_t fetched, std::uint32_t acknowledged);

namespace feroce::rdmacm {
namespace {

const char* why_refused(Stage stage) {
    switch (stage) {
        case Stage::Idle:
            return "the id has no address yet";
        case Stage::Bound:
            return "the id is bound to an address, and to nothing more";
        case Stage::Resolved:
            return "the id has an address and no route yet";
        case Stage::Routed:
            return "the id has its route and is not connected";
        case Stage::Listening:
            return "the id listens";
        case Stage::Asked:
            return "the id waits for the peer's answer";
        case Stage::Answered:
            return "the peer has accepted; the id is to be established or refused";
        case Stage::Requested:
            return "the id is a request, to be accepted or refused";
        case Stage::Accepted:
            return "the id has accepted and waits for the peer";
        case Stage::Connected:
            return "the id is connected";
        case Stage::Over:
        case Stage::Count:
            break;
    }
    return "the connection of the id is over";
}

// For the state page, which is libibverbs's: what was injected, so that nobody hunts for it.
void tell_service(const char* call, const Error& error) {
    if (error.why != process::kInjected) return;
    if (process::CmService* service = feroce_cm_service(false)) service->note_refusal(call, error);
}

}  // namespace

Library* library() {
    process::CmService* service = feroce_cm_service(true);
    if (service == nullptr) return nullptr;
    const auto make = []() -> std::unique_ptr<process::CmUser> {
        auto* fresh = new (std::nothrow) Library;
        if (fresh != nullptr) fresh->service = feroce_cm_service(false);
        return std::unique_ptr<process::CmUser>(fresh);
    };
    process::keep_refusals(tell_service);
    auto* user = static_cast<Library*>(service->user(make));
    if (user == nullptr) (void)refuse("rdma_cm", process::kNoMemory);
    return user;
}

bool is_current(const Library& library) {
    return library.service == feroce_cm_service(false);
}

Entry::Entry(CmId& id, Call call, const char* name) : id_(id), call_(call), name_(name) {
    if (!is_current(*id.library)) {
        verdict_ = ENODEV;
        fail(name, {ENODEV, "the id is of the process that forked"});
        return;
    }
    const StageKeeper::Entry entry = id.stage.enter(call);
    verdict_ = entry.verdict;
    before_ = entry.before;
    // A synchronous call waits for an event, and what has no effect causes none.
    if (no_effect() && id.synchronous) verdict_ = EINVAL;
    if (refused()) fail(name, {verdict_, why_refused(before_)});
}

Entry::~Entry() {
    if (refused()) errno = verdict_;  // What the call did since may have changed it.
    if (!kept_ && verdict_ == 0) id_.stage.advance(leads_to(call_, before_), before_);
}

CmId* create(Channel* channel, void* context, rdma_port_space space, ibv_qp_type type) {
    const Uncancelled call;
    Library* home = library();
    if (home == nullptr) return nullptr;
    auto id = std::make_unique<CmId>();
    id->synchronous = channel == nullptr;
    if (channel == nullptr) channel = make_channel();
    if (channel == nullptr) return nullptr;
    id->library = home;
    id->service = home->service;
    id->starting_psn = Psn(static_cast<std::uint32_t>(home->service->random()));
    id->base.channel = &channel->base;
    id->base.context = context;
    id->base.ps = space;
    id->base.qp_type = type;
    return id.release();
}

void destroy(CmId& id) {
    process::Undisturbed call;
    // A signal handler may leave the wait below by siglongjmp(); then the program calls again.
    if (rdma_cm_event* event = std::exchange(id.base.event, nullptr)) rdma_ack_cm_event(event);
    if (is_current(*id.library)) {
        if (const auto left = std::exchange(id.connection, std::nullopt))
            id.service->release(*left);
        if (const auto left = std::exchange(id.listener, std::nullopt)) id.service->unlisten(*left);
        id.service->end_lease(std::exchange(id.lease, {}));
        leave_all_groups(id);
        for (const auto& request : settle_events(call, id)) destroy(id_of(request->base.id));
    }
    if (id.synchronous) rdma_destroy_event_channel(id.base.channel);
    rdma_freeaddrinfo(id.resolved_names);
    delete &id;
}

void set_path_record(CmId& id) {
    ibv_sa_path_rec& r = id.path_record;
    r.dgid = gid_to_ibv(id.remote);
    r.sgid = gid_to_ibv(id.local);
    r.hop_limit = id.path.hop_limit;
    r.traffic_class = id.path.traffic_class;
    r.reversible = 1;
    r.numb_path = 1;
    r.pkey = htobe16(kDefaultPkey.raw);
    r.mtu_selector = 2;  // Exactly.
    r.mtu = id.path.mtu;
    r.rate_selector = 2;
    r.rate = IBV_RATE_10_GBPS;
    r.packet_life_time_selector = 2;
    r.packet_life_time = static_cast<std::uint8_t>(id.path.ack_timeout - 1);
    id.base.route.path_rec = &r;
    id.base.route.num_paths = 1;
}

namespace {

// Lint tells of a wait that would not end. Another thread may be about to acknowledge.
void lint_events(CmId& id) {
    constexpr int kLooks = 100;
    const Uncancelled call;
    if (!is_current(*id.library) || id.synchronous) return;
    std::uint32_t fetched = 0, acknowledged = 0;
    for (int i = 0; i < kLooks; ++i) {
        {
            const std::lock_guard lock(id.library->mutex);
            fetched = id.delivered;
            acknowledged = id.acknowledged;
        }
        if (fetched == acknowledged) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    feroce_lint_cm_events(fetched, acknowledged);
}

int set_id_option(CmId& id, int name, const void* value, std::size_t length) {
    if (name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT) {
        if (length != sizeof(std::uint8_t))
            return fail("rdma_set_option", {EINVAL, "this option has one byte"});
        std::uint8_t byte;
        std::memcpy(&byte, value, sizeof byte);
        if (name == RDMA_OPTION_ID_TOS)
            id.options.tos = byte;
        else if (byte < 32)
            id.options.ack_timeout = byte;
        else
            return fail("rdma_set_option", {EINVAL, "an ACK timeout has five bits"});
        return 0;
    }
    if (name != RDMA_OPTION_ID_REUSEADDR && name != RDMA_OPTION_ID_AFONLY)
        return fail("rdma_set_option", {ENOSYS, "no such option of an id"});
    int number;
    if (length != sizeof number) return fail("rdma_set_option", {EINVAL, "this option is an int"});
    std::memcpy(&number, value, sizeof number);
    // An address is free again at once, so there is nothing to reuse.
    if (name == RDMA_OPTION_ID_REUSEADDR) return 0;
    Entry entry(id, Call::SetFamilyOnly, "rdma_set_option");
    if (entry.refused()) return -1;
    id.options.v6_only = number != 0;
    return 0;
}

}  // namespace
}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context,
                   rdma_port_space space) {
    return abi_call("rdma_create_id", [&]() -> int {
        const bool datagrams = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB;
        if (!datagrams && space != RDMA_PS_TCP && space != RDMA_PS_IB)
            return fail("rdma_create_id", {EINVAL, "no such port space"});
        CmId* id = create(channel == nullptr ? nullptr : &channel_of(channel), context, space,
                          datagrams ? IBV_QPT_UD : IBV_QPT_RC);
        if (id == nullptr) return -1;
        *out = &id->base;
        annotate::defined(out);
        return 0;
    });
}

int rdma_destroy_id(rdma_cm_id* base) {
    if (feroce_lint_is_on()) lint_events(id_of(base));
    destroy(id_of(base));
    return 0;
}

int rdma_migrate_id(rdma_cm_id* base, rdma_event_channel* channel) {
    return within_memory("rdma_migrate_id", [&]() -> int {
        process::Undisturbed call;
        CmId& id = id_of(base);
        if (!is_current(*id.library))
            return fail("rdma_migrate_id", {ENODEV, "the id is of the process that forked"});
        const bool synchronous = channel == nullptr;
        if (synchronous && id.synchronous)
            return fail("rdma_migrate_id", {EINVAL, "the id has a channel of its own already"});
        Channel* to = synchronous ? make_channel() : &channel_of(channel);
        if (to == nullptr) return -1;
        if (base->event != nullptr) rdma_ack_cm_event(base->event);
        base->event = nullptr;
        rdma_event_channel* old = id.synchronous ? base->channel : nullptr;
        move_events(call, id, *to);
        id.synchronous = synchronous;
        if (old != nullptr) rdma_destroy_event_channel(old);
        return 0;
    });
}

int rdma_set_option(rdma_cm_id* base, int level, int name, void* value, std::size_t length) {
    return abi_call("rdma_set_option", [&]() -> int {
        if (value == nullptr) return fail("rdma_set_option", {EINVAL, "no value"});
        if (level == RDMA_OPTION_ID) return set_id_option(id_of(base), name, value, length);
        // A path given by the program: there is only the one that the kernel's routes give.
        if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH)
            return fail("rdma_set_option",
                        {EOPNOTSUPP, "paths of RoCE are not the program's to set"});
        return fail("rdma_set_option", {ENOSYS, "no such option"});
    });
}

__be16 rdma_get_src_port(rdma_cm_id* base) {
    return htons(port_in(base->route.addr.src_storage));
}

__be16 rdma_get_dst_port(rdma_cm_id* base) {
    return htons(port_in(base->route.addr.dst_storage));
}

ibv_context** rdma_get_devices(int* count) {
    return abi_call("rdma_get_devices", [&]() -> ibv_context** {
        Library* home = library();
        if (home == nullptr) return nullptr;
        const std::vector<Device*> all = devices(*home);
        auto** list = static_cast<ibv_context**>(std::calloc(all.size() + 1, sizeof(void*)));
        if (list == nullptr) return nullptr;
        for (std::size_t i = 0; i < all.size(); ++i) list[i] = all[i]->context;
        if (count != nullptr) *count = static_cast<int>(all.size());
        annotate::defined(count);
        return list;
    });
}

void rdma_free_devices(ibv_context** list) {
    std::free(list);
}
