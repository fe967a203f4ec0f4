#include "process/call_faults.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/random.hpp"

namespace feroce::process {
namespace {

using Subject = FaultSubject;

// Library: calls that come with no events, because no context has been opened for them to arrive
// at, and those of rdma_cm. Calls that destroy are not here: a program has no second way to do what
// they do.
constexpr std::array<FaultCall, kFaultCalls> kCalls{{
    {{"ibv_get_device_list"}, Subject::Library},
    {{"ibv_open_device"}, Subject::Library},
    {{"ibv_import_device"}, Subject::Library},
    {{"ibv_query_device", "ibv_query_device_ex"}},
    {{"ibv_query_port"}},
    {{"ibv_query_gid"}},
    {{"ibv_query_gid_ex"}},
    {{"ibv_query_gid_table"}},
    {{"ibv_alloc_pd"}},
    {{"ibv_import_pd"}},
    {{"ibv_alloc_parent_domain"}},
    {{"ibv_alloc_td"}},
    {{"ibv_reg_mr", "ibv_reg_mr_iova", "ibv_reg_mr_iova2"}},
    {{"ibv_reg_mr_ex"}},
    {{"ibv_reg_dmabuf_mr"}},
    {{"ibv_reg_dm_mr"}},
    {{"ibv_rereg_mr"}},
    {{"ibv_import_mr"}},
    {{"ibv_alloc_null_mr"}},
    {{"ibv_advise_mr"}},
    {{"ibv_alloc_dm"}},
    {{"ibv_alloc_mw"}},
    {{"ibv_create_comp_channel"}},
    {{"ibv_create_cq", "ibv_create_cq_ex"}},
    {{"ibv_resize_cq"}},
    {{"ibv_create_srq", "ibv_create_srq_ex"}},
    {{"ibv_modify_srq"}},
    {{"ibv_open_xrcd"}},
    {{"ibv_create_qp", "ibv_create_qp_ex"}},
    {{"ibv_modify_qp"}},
    {{"ibv_query_qp"}},
    {{"ibv_create_ah"}},
    {{"ibv_attach_mcast"}},
    {{"ibv_post_send", "ibv_wr_complete"}, Subject::Qp},
    {{"ibv_post_recv"}, Subject::Qp},
    {{"ibv_bind_mw"}, Subject::Qp},
    {{"ibv_post_srq_recv"}, Subject::Srq},
    {{"ibv_poll_cq", "ibv_start_poll", "ibv_next_poll"}, Subject::Cq, true},
    {{"ibv_req_notify_cq"}, Subject::Cq},
    {{"rdma_create_event_channel"}, Subject::Library},
    {{"rdma_create_id"}, Subject::Library},
    {{"rdma_create_ep"}, Subject::Library},
    {{"rdma_getaddrinfo"}, Subject::Library},
    {{"rdma_bind_addr"}, Subject::Library},
    {{"rdma_resolve_addr"}, Subject::Library},
    {{"rdma_resolve_route"}, Subject::Library},
    {{"rdma_create_qp", "rdma_create_qp_ex"}, Subject::Library},
    {{"rdma_listen"}, Subject::Library},
    {{"rdma_connect"}, Subject::Library},
    {{"rdma_accept"}, Subject::Library},
    {{"rdma_reject"}, Subject::Library},
    {{"rdma_join_multicast", "rdma_join_multicast_ex"}, Subject::Library},
}};
static_assert(kCalls.back().names[0] != nullptr);

struct EventName {
    const char* name;
    FaultEvent event;
    Subject subject;
};
constexpr EventName kEvents[] = {
    {"CQ_ERR", FaultEvent::CqError, Subject::Cq},
    {"QP_FATAL", FaultEvent::QpFatal, Subject::Qp},
    {"QP_REQ_ERR", FaultEvent::QpRequestError, Subject::Qp},
    {"QP_ACCESS_ERR", FaultEvent::QpAccessError, Subject::Qp},
    {"DEVICE_FATAL", FaultEvent::DeviceFatal, Subject::Device},
    {"PORT_ACTIVE", FaultEvent::PortActive, Subject::Device},
    {"PORT_ERR", FaultEvent::PortError, Subject::Device},
    {"SRQ_ERR", FaultEvent::SrqError, Subject::Srq},
    {"SRQ_LIMIT_REACHED", FaultEvent::SrqLimitReached, Subject::Srq},
    {"GID_CHANGE", FaultEvent::GidChange, Subject::Device},
};

constexpr Error kUnknownCall{EINVAL,
                             "FEROCE_FAULTS names a call that has no faults; see feroce-faults(7)"};
constexpr Error kUnknownFault{
    EINVAL,
    "FEROCE_FAULTS names neither an errno nor an event after the colon; see feroce-faults(7)"};
constexpr Error kWrongEvent{
    EINVAL, "FEROCE_FAULTS has an event that its call cannot come with; see feroce-faults(7)"};
constexpr Error kWrongCount{EINVAL,
                            "FEROCE_FAULTS has a count that is not a number from 1, or a rate that "
                            "is not one from 0 to 1; see feroce-faults(7)"};
constexpr Error kEmptyItem{EINVAL,
                           "FEROCE_FAULTS has an item with nothing in it; see feroce-faults(7)"};
constexpr Error kWrongTime{
    EINVAL, "FEROCE_FAULTS has a time that is no number of ms within a day; see feroce-faults(7)"};

std::optional<std::size_t> row_of(std::string_view name) {
    for (std::size_t row = 0; row < kCalls.size(); ++row)
        for (const char* known : kCalls[row].names)
            if (known != nullptr && name == known) return row;
    return std::nullopt;
}

const EventName* event_of(std::string_view name) {
    const auto* found = std::find_if(std::begin(kEvents), std::end(kEvents),
                                     [name](const EventName& e) { return name == e.name; });
    return found == std::end(kEvents) ? nullptr : found;
}

// 0 if there is none of that name.
int errno_of(std::string_view name) {
    constexpr int kErrnoMax = 133;  // Linux's: EHWPOISON.
    if (name == "ENOTSUP") return EOPNOTSUPP;
    if (name == "EWOULDBLOCK") return EAGAIN;
    for (int code = 1; code <= kErrnoMax; ++code)
        if (const char* known = ::strerrorname_np(code); known != nullptr && name == known)
            return code;
    return 0;
}

template <class Number>
bool parse_number(std::string_view text, Number& out) {
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data(), end, out);
    return error == std::errc() && last == end;
}

bool parse_rate(std::string_view text, double& out) {
    const std::string whole(text);
    char* end = nullptr;
    out = std::strtod(whole.c_str(), &end);
    return !whole.empty() && *end == '\0' && out >= 0 && out <= 1;
}

// Whether a call of the row has at hand what the event is about.
bool can_raise(const FaultCall& call, Subject event) {
    if (call.subject == Subject::Library) return false;
    return event == Subject::Device || event == call.subject;
}

Result<void> set_effect(std::string_view what, const FaultCall& call, CallFault& out) {
    if (what == "LATE") {
        if (!call.polls) return kWrongEvent;
        out.late = true;
        return {};
    }
    if (const EventName* event = event_of(what)) {
        if (!can_raise(call, event->subject)) return kWrongEvent;
        out.event = event->event;
        return {};
    }
    out.error = errno_of(what);
    if (out.error == 0) return kUnknownFault;
    return {};
}

// CALL:WHAT@N, CALL:WHAT@N+ or CALL:WHAT=RATE.
Result<CallFault> parse_call(std::string_view item, std::size_t colon) {
    CallFault out;
    out.call = row_of(item.substr(0, colon));
    if (!out.call) return kUnknownCall;
    const std::string_view rest = item.substr(colon + 1);
    const std::size_t mark = rest.find_first_of("@=");
    TRY(set_effect(rest.substr(0, mark), kCalls[*out.call], out));
    if (mark == std::string_view::npos) return kWrongCount;
    std::string_view when = rest.substr(mark + 1);
    if (rest[mark] == '=') {
        if (!parse_rate(when, out.rate)) return kWrongCount;
        return out;
    }
    out.onward = when.ends_with('+');
    if (out.onward) when.remove_suffix(1);
    if (!parse_number(when, out.first) || out.first == 0) return kWrongCount;
    return out;
}

// EVENT@Nms.
Result<CallFault> parse_time(std::string_view item) {
    constexpr std::uint32_t kDayMs = 86'400'000;
    const std::size_t mark = item.find('@');
    CallFault out;
    const EventName* event = event_of(item.substr(0, mark));
    if (event == nullptr) return kUnknownFault;
    if (event->subject != Subject::Device) return kWrongEvent;
    out.event = event->event;
    std::string_view when = item.substr(mark + 1);
    std::uint32_t ms = 0;
    if (!when.ends_with("ms")) return kWrongTime;
    when.remove_suffix(2);
    if (!parse_number(when, ms) || ms > kDayMs) return kWrongTime;
    out.after = std::chrono::milliseconds(ms);
    return out;
}

}  // namespace

const std::array<FaultCall, kFaultCalls>& fault_calls() {
    return kCalls;
}

const char* name_of(FaultEvent event) {
    for (const EventName& known : kEvents)
        if (known.event == event) return known.name;
    return "an event";
}

Result<FaultPlan> plan_faults(std::string_view text) {
    FaultPlan out;
    if (text.ends_with(',')) return kEmptyItem;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        if (item.empty()) return kEmptyItem;
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        const std::size_t colon = item.find(':');
        if (colon != std::string_view::npos || item.find('@') != std::string_view::npos) {
            const Result<CallFault> fault =
                colon != std::string_view::npos ? parse_call(item, colon) : parse_time(item);
            if (!fault) return fault.error();
            out.calls.push_back(*fault);
            continue;
        }
        constexpr std::string_view kSeed = "seed=";
        if (!item.starts_with(kSeed))
            out.has_packets = true;
        else if (!parse_number(item.substr(kSeed.size()), out.seed))
            return Error{EINVAL, "FEROCE_FAULTS has a seed that is no number; see feroce(1)"};
        if (!out.packets.empty()) out.packets += ',';
        out.packets += item;
    }
    return out;
}

// A generator of its own for each: what happens hangs on nothing but seed, fault and number.
bool CallFaults::hits(std::size_t index, std::uint64_t nth) const {
    const CallFault& fault = plan_.calls[index];
    if (fault.first != 0) return fault.onward ? nth >= fault.first : nth == fault.first;
    return Prng(plan_.seed * 0x9e37'79b9'7f4a'7c15 + (std::uint64_t{index + 1} << 40) + nth)
        .chance(fault.rate);
}

CallFaults::Verdict CallFaults::next(std::string_view call) {
    Verdict out;
    const std::optional<std::size_t> row = row_of(call);
    if (!row) return out;
    out.call = kCalls[*row].names[0];
    const std::uint64_t nth = counts_[*row].fetch_add(1, std::memory_order_relaxed) + 1;
    for (std::size_t i = 0; i < plan_.calls.size(); ++i) {
        const CallFault& fault = plan_.calls[i];
        if (fault.call != row || !hits(i, nth)) continue;
        if (out.error == 0) out.error = fault.error;
        if (!out.event) out.event = fault.event;
        out.late |= fault.late;
    }
    return out;
}

void CallFaults::restart() {
    for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
}

}  // namespace feroce::process
