#include "process/state_export.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/rollback.hpp"
#include "process/log.hpp"
#include "process/state_layout.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;

// A lock that cannot be had for this long belongs to a thread that is gone or stopped.
constexpr Duration kPatience = 500ms;
constexpr std::uint8_t kNoDevice = 255;
// Queue pairs that may be made between two looks at an engine and still are told of.
constexpr std::size_t kNewQpsMax = 64;

void add(std::vector<StateCounter>& into, std::string name, std::uint64_t value) {
    const auto same = [&name](const StateCounter& c) { return c.name == name; };
    const auto found = std::find_if(into.begin(), into.end(), same);
    if (found != into.end())
        found->value += value;
    else
        into.push_back({std::move(name), value});
}

void add_round_trips(const transport::RoundTrips& trips, std::vector<StateCounter>& into) {
    static_assert(transport::RoundTrips::kBounds == kRoundTripBounds);
    for (std::size_t i = 0; i < kRoundTripBounds; ++i)
        add(into, kRoundTripPrefix + std::to_string(1U << i), trips.counts[i]);
    add(into, std::string(kRoundTripPrefix) + "inf", trips.counts[kRoundTripBounds]);
    add(into, kRoundTripSum, trips.sum_ns);
}

void add_counters(const transport::Counters& counters, std::vector<StateCounter>& into) {
    for (std::size_t i = 0; i < counters.values.size(); ++i)
        add(into, transport::name(static_cast<transport::Counter>(i)), counters.values[i]);
    for (std::size_t i = 0; i < counters.drops.size(); ++i)
        add(into, std::string("drop_") + transport::name(static_cast<transport::DropReason>(i)),
            counters.drops[i]);
    add_round_trips(counters.round_trips, into);
}

void add_error(const StateError& error, std::vector<StateError>& into) {
    const auto same = [&error](const StateError& e) {
        return e.at_responder == error.at_responder && e.cause == error.cause &&
               e.status == error.status;
    };
    const auto found = std::find_if(into.begin(), into.end(), same);
    if (found != into.end())
        found->count += error.count;
    else
        into.push_back(error);
}

void add_errors(const transport::ErrorCounts& counts, std::vector<StateError>& into) {
    for (const bool at_responder : {false, true})
        for (std::size_t r = 0; r < transport::ErrorCounts::kRules; ++r)
            for (std::size_t s = 0; s < transport::ErrorCounts::kStatuses; ++s) {
                const auto rule = static_cast<transport::Rule>(r);
                const auto status = static_cast<transport::WcStatus>(s);
                if (const std::uint64_t count = counts.of(at_responder, rule, status); count > 0)
                    add_error({transport::name(status), transport::name(rule), at_responder, count},
                              into);
            }
}

// A packet or two that come again, or a first one that did not come, are the network's daily loss.
std::uint32_t count_worth_telling(transport::NoticeKind kind) {
    if (kind == transport::NoticeKind::AnswersLost) return 3;
    return kind == transport::NoticeKind::FirstPsn ? 2 : 1;
}

bool is_worth_telling(const transport::Notice& notice) {
    return notice.kind != transport::NoticeKind::None &&
           notice.count >= count_worth_telling(notice.kind);
}

// A reliable connection that was ready and got no packet at all: its peer may wonder why.
bool heard_nothing(const StateQp& qp) {
    constexpr auto kReliable = static_cast<std::uint8_t>(transport::QpType::Rc);
    constexpr auto kReady = static_cast<std::uint8_t>(transport::QpState::Rts);
    return qp.type == kReliable && qp.state == kReady && qp.packets_received == 0 &&
           qp.packets_sent == 0;
}

StateReasonKind kind_of(transport::NoticeKind kind) {
    switch (kind) {
        case transport::NoticeKind::NoReceive:
            return StateReasonKind::Refusal;
        case transport::NoticeKind::CompletionsLost:
            return StateReasonKind::Local;
        default:
            return StateReasonKind::Notice;
    }
}

StateReason reason_of(const transport::Notice& notice) {
    StateReason out;
    out.qpn = notice.qpn.raw;
    out.peer_qpn = notice.peer.raw;
    out.psn = notice.psn.raw();
    out.kind = kind_of(notice.kind);
    // An end that is destroyed in order need not wait for the last packets of the other.
    out.minor = notice.kind == transport::NoticeKind::DestroyedQp;
    // The packets came from the peer.
    const bool ours = notice.kind == transport::NoticeKind::SendRefused;
    out.destination = ours ? notice.destination : notice.source;
    out.sentence = transport::describe(notice);
    return out;
}

void add_progress(transport::QueuePair& qp, Instant now, StateQp& out) {
    const transport::Progress progress = qp.machine().progress();
    out.next_psn = progress.next.raw();
    out.unacknowledged_psn = progress.unacknowledged.raw();
    out.expected_psn = progress.expected.raw();
    out.msn = progress.msn;
    out.in_flight_bytes = progress.in_flight_bytes;
    out.credits = progress.credits;
    out.path_mtu = qp.attributes().path_mtu;
    out.retries_left = progress.retries_left;
    out.rnr_retries_left = progress.rnr_retries_left;
    const Instant deadline = qp.machine().deadline();
    if (deadline != kNever)
        out.timer_us = static_cast<std::int32_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(
                std::clamp<Duration>(deadline - now, Duration{0}, std::chrono::minutes(30)))
                .count());
    if (qp.window() == nullptr) return;
    out.window_bytes = qp.window()->size();
    out.rtt_ns = static_cast<std::uint64_t>(qp.window()->smoothed_rtt().count());
}

}  // namespace

StateReason reason_of(const transport::Reason& reason) {
    return {.qpn = reason.qpn.raw,
            .peer_qpn = reason.peer.raw,
            .psn = reason.psn.raw(),
            .kind = reason.at_responder ? StateReasonKind::Refusal : StateReasonKind::Failure,
            // Whom nothing could be sent to is not called silent.
            .peer_silent = reason.rule == transport::Rule::RetryLimit && reason.send_error == 0,
            .with_peer = transport::concerns_peer(reason),
            .source = reason.source,
            .destination = reason.destination,
            .sentence = transport::describe(reason)};
}

void EngineMemory::look(const device::Engine& engine) {
    counters = engine.counters();
    log = engine.reasons();
    mangled_source = engine.mangled_source();
}

std::vector<StateReason> reasons_of(const EngineMemory& memory) {
    std::vector<StateReason> out;
    const transport::ReasonLog& log = memory.log;
    const std::uint32_t last = log.last_id();
    for (std::uint32_t age = transport::ReasonLog::kCapacity; age-- > 0;)
        if (const transport::Reason* reason = log.find(last - age))
            out.push_back(reason_of(*reason));
    for (const transport::Notice& notice : log.notices.all())
        if (is_worth_telling(notice)) out.push_back(reason_of(notice));
    if (const std::optional<Gid>& source = memory.mangled_source) {
        StateReason mangled;
        mangled.sentence = "no packet from " + to_string(*source) +
                           " has a good ICRC: something on the way rewrites them, such as address "
                           "translation or segmentation by hardware";
        out.push_back(std::move(mangled));
    }
    return out;
}

StateExport::StateExport(DeviceName device_name, Inventory inventory)
    : device_name_(device_name), inventory_(inventory) {
    devices_.reserve(kNoDevice);
}

StateExport::~StateExport() {
    stop_.store(true);
    if (page_ != nullptr) page_->interrupt();
    thread_.reset();
    if (page_ != nullptr) page_->remove();
}

void StateExport::start(host::Host& host, std::function<void()> refresh) {
    identity_ = host.identity();
    if (page_ != nullptr) return page_->forget_connections();  // Those of the last time.
    Result<std::unique_ptr<StatePage>> page = StatePage::create(identity_.user);
    if (!page) {
        (void)refuse("state page", page.error());
        mark_unkept(identity_.user);
        return;
    }
    page_ = std::move(*page);
    host_ = &host;
    refresh_ = std::move(refresh);
    Rollback undo([this] {
        page_->remove();
        page_.reset();
    });
    Result<std::unique_ptr<host::Task>> thread = host.spawn([this] { body(); });
    if (thread) thread_ = std::move(*thread);
    undo.keep();
    notes_page_.store(page_.get(), std::memory_order_release);
}

void StateExport::body() {
    while (!stop_.load()) {
        const std::uint32_t seen = page_->request();
        refresh_();
        page_->wait_for_request(seen);
    }
}

std::uint8_t StateExport::device_index(const char* name) {
    if (name == nullptr) return kNoDevice;
    const std::string_view wanted = std::string_view(name).substr(0, Name{}.size() - 1);
    const auto found = std::find_if(devices_.begin(), devices_.end(),
                                    [&](const Name& known) { return wanted == known.data(); });
    const auto index = found - devices_.begin();
    if (index >= kNoDevice) return kNoDevice;
    if (found == devices_.end()) wanted.copy(devices_.emplace_back().data(), wanted.size());
    return static_cast<std::uint8_t>(index);
}

StateQp StateExport::record_of(const device::Engine& engine, transport::QueuePair& qp,
                               Instant now) {
    const transport::QpAttributes& a = qp.attributes();
    const bool general_services = qp.qpn() == kGeneralServicesQpn;
    StateQp out;
    out.qpn = qp.qpn().raw;
    out.peer_qpn = a.destination_qpn.raw;
    out.type = static_cast<std::uint8_t>(qp.type());
    out.state = static_cast<std::uint8_t>(qp.state());
    out.path_migration_state = a.path_migration_state;
    out.device = device_index(general_services ? nullptr : device_name_(qp.init().owner));
    out.send_psn = a.send_psn.raw();
    out.receive_psn = a.receive_psn.raw();
    out.pd = qp.init().pd.raw;
    out.sends_outstanding = qp.send_queue().size();
    out.sends_posted = qp.send_queue().tail();
    out.packets_sent = qp.packets_sent();
    out.packets_received = qp.packets_received();
    out.receives_posted = qp.receive_queue().available();
    if ((qp.first_reason() & transport::ReasonLog::kOrderly) == 0)
        out.first_reason = qp.first_reason();
    out.source = a.address.source;
    out.destination = a.address.destination;
    out.by_ring = engine.goes_by_ring(qp) ? 1 : 0;
    add_progress(qp, now, out);
    return out;
}

void StateExport::collect_qps(device::Engine& engine, StateSnapshot& out) {
    const Instant now = host_->now();
    engine.qps().for_each([&](transport::QueuePair& qp) {
        engine.observe(qp);
        if (out.qps.size() < out.qps.capacity())
            out.qps.push_back(record_of(engine, qp, now));
        else
            ++out.qps_left_out;
    });
}

void StateExport::collect(Shard& shard, EngineMemory& memory, StateSnapshot& out) {
    std::size_t count = 0;
    if (!shard.inspect(kPatience, [&](device::Engine& engine) { count = engine.qps().size(); }))
        return;
    constexpr std::size_t kQpsMax = kSnapshotMax / 2 / sizeof(StateQp);
    out.qps.reserve(std::min(kQpsMax, out.qps.size() + count + kNewQpsMax));
    const bool seen = shard.inspect(kPatience, [&](device::Engine& engine) {
        collect_qps(engine, out);
        memory.look(engine);
    });
    if (!seen) return;
    add_counters(memory.counters, out.counters);
    add_errors(memory.log.counts(), out.errors);
    for (StateReason& reason : reasons_of(memory)) out.reasons.push_back(std::move(reason));
}

void StateExport::publish(Shards shards, bool finished) {
    if (page_ == nullptr || shards.empty()) return;
    StateSnapshot snapshot;
    snapshot.pid = static_cast<std::uint32_t>(::getpid());
    snapshot.finished = finished;
    snapshot.command = program_invocation_short_name;
    snapshot.network = identity_.network;
    for (const std::unique_ptr<Shard>& shard : shards) snapshot.slots.push_back(shard->slot());
    const auto memory = std::make_unique<EngineMemory>();
    for (const std::unique_ptr<Shard>& shard : shards) collect(*shard, *memory, snapshot);
    for (const Name& device : devices_) snapshot.devices.emplace_back(device.data());
    snapshot.resources = inventory_();
    explains_ = !snapshot.reasons.empty() ||
                std::any_of(snapshot.qps.begin(), snapshot.qps.end(), heard_nothing);
    if (page_->write(encode(snapshot))) return;
    snapshot.qps_left_out += static_cast<std::uint32_t>(snapshot.qps.size());
    snapshot.qps.clear();
    (void)page_->write(encode(snapshot));
}

void StateExport::note_connection(Qpn qpn, Qpn peer) {
    if (page_ != nullptr) page_->note_connection(qpn, peer);
}

void StateExport::note_refusal(const char* call, const Error& error,
                               const transport::QueuePair* qp) {
    if (StatePage* page = notes_page_.load(std::memory_order_acquire); page != nullptr)
        notes_.refused(*page, call, error, qp);
}

void StateExport::note_raised(const char* call, FaultEvent event, const transport::QueuePair* qp) {
    if (StatePage* page = notes_page_.load(std::memory_order_acquire); page != nullptr)
        notes_.raised(*page, call, event, qp);
}

void StateExport::note_failure(const transport::Reason& reason) {
    StatePage* const page = notes_page_.load(std::memory_order_acquire);
    if (page == nullptr) return;
    const StateReason full = reason_of(reason);
    notes_.failed(*page, full, full.sentence);
}

void StateExport::ask() {
    if (page_ != nullptr) page_->interrupt();
}

void StateExport::finish() {
    if (page_ != nullptr && !explains_ && !notes_.explains()) page_->remove();
}

void StateExport::abandon() {
    notes_page_.store(nullptr, std::memory_order_relaxed);
    if (page_ != nullptr) page_->abandon();
}

}  // namespace feroce::process
