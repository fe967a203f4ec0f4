#include "port/unix_rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "port/clock.hpp"
#include "port/cm_names.hpp"
#include "port/epoll_calls.hpp"

namespace feroce::port {
namespace {

using namespace std::chrono_literals;

// epoll_event::data of what is not a lease; leases have small numbers.
constexpr std::uint64_t kOwnDoorbell = ~std::uint64_t{0};
constexpr std::uint64_t kRequests = kOwnDoorbell - 1;
constexpr std::uint32_t kForAll = ~std::uint32_t{0};  // As a lease: what is offered to all.
constexpr int kFreePortTries = 256;
constexpr std::size_t kEventsAtOnce = 16;
// Everybody is asked for what a stranger can send, so not more often than this.
constexpr Duration kOfferToAllGap = 50ms;
// For all letters of a box whose senders have connected and not written yet.
constexpr Duration kReadPatience = 50ms;
// How long a process that has leased no port leaves requests to those that have. A peer that asks
// for nobody's port is refused as much later.
constexpr Duration kRequestsRest = 2ms;

}  // namespace

Result<std::unique_ptr<host::Rendezvous>> UnixRendezvous::open(
    const Settings& settings, RandomSource& random, std::function<Neighbours()> neighbours) {
    std::unique_ptr<UnixRendezvous> out(
        new UnixRendezvous(settings, random, std::move(neighbours)));
    out->epoll_ = Fd(kernel_epoll_create());
    out->called_.reserve(kEventsAtOnce);  // So wait() takes no memory.
    const int set = out->epoll_.get();
    if (!out->epoll_.valid() || !out->doorbell_.open() ||
        !add_to_set(set, out->doorbell_.fd(), EPOLLIN, kOwnDoorbell) ||
        (settings.requests_fd >= 0 && !add_to_set(set, settings.requests_fd, EPOLLIN, kRequests)))
        return Error{errno, "no file descriptors for the connection manager"};
    // Without it (the name is taken) we only miss what is offered to all.
    (void)out->hold(kForAll, mailbox_name(settings.user, settings.slot));
    return std::unique_ptr<host::Rendezvous>(std::move(out));
}

Result<void> UnixRendezvous::hold(std::uint32_t lease, std::string name) {
    Result<Mailbox> box = network_->run([&] { return Mailbox::open(std::move(name)); });
    if (!box) return box.error();
    if (!add_to_set(epoll_.get(), box->fd(), EPOLLIN, lease))
        return Error{errno, "no memory for a port of rdma_cm"};
    boxes_.insert_or_assign(lease, std::move(*box));
    if (lease != kForAll) leases_.fetch_add(1, std::memory_order_relaxed);
    return {};
}

bool UnixRendezvous::wait(Instant until) {
    std::array<epoll_event, kEventsAtOnce> events;
    called_.clear();
    for (;;) {
        const int count = wait_for_events(epoll_.get(), events, std::min(until, requests_rest_));
        bool requests = false, else_something = false;
        for (int i = 0; i < count; ++i) {
            const std::uint64_t source = events[static_cast<std::size_t>(i)].data.u64;
            else_something |= source != kRequests;
            if (source == kOwnDoorbell)
                doorbell_.clear();
            else if (source == kRequests)
                requests = true;
            else
                called_.push_back(source);
        }
        const Instant now = monotonic_now();
        if (requests || requests_rest_ <= now) requests = found_requests(now);
        if (requests || else_something || count < 0 || until <= now) return requests;
    }
}

void UnixRendezvous::watch_requests(bool watch) {
    epoll_event event{};
    event.events = watch ? static_cast<std::uint32_t>(EPOLLIN) : 0u;
    event.data.u64 = kRequests;
    kernel_epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, requests_fd_, &event);
}

// Requests wait, or did so when the rest began. True: they are to be read.
bool UnixRendezvous::found_requests(Instant now) {
    const bool rested = requests_rest_ <= now;
    const bool rests = !rested && leases_.load(std::memory_order_relaxed) == 0;
    if (rested || rests) watch_requests(rested);
    requests_rest_ = rests ? now + kRequestsRest : kNever;
    return !rests;
}

void UnixRendezvous::wake() {
    doorbell_.ring();
}

Result<PortLease> UnixRendezvous::lease(wire::PortSpace space, const Gid& address,
                                        std::uint16_t port) {
    const int tries = port == 0 ? kFreePortTries : 1;
    for (int i = 0; i < tries; ++i) {
        const std::uint16_t wanted = port != 0 ? port : host::free_port(random_.next());
        const std::uint64_t service = wire::make_service_id(space, wanted).raw;
        const std::uint32_t id = next_id_++;
        const Result<void> held = hold(id, lease_name(user_, service, address));
        if (held) return PortLease{id, wanted};
        if (held.error().code != EADDRINUSE) return held.error();
    }
    return Error{EADDRINUSE, "the rdma_cm port is taken on this address"};
}

void UnixRendezvous::end(const PortLease& lease) {
    // It leaves the epoll set by itself.
    leases_.fetch_sub(static_cast<std::uint32_t>(boxes_.erase(lease.id)),
                      std::memory_order_relaxed);
}

bool UnixRendezvous::is_ours(const std::string& name) const {
    return std::any_of(boxes_.begin(), boxes_.end(),
                       [&](const auto& entry) { return entry.second.name() == name; });
}

bool UnixRendezvous::is_leased(std::uint64_t service, const Gid& address) const {
    const std::vector<Gid> addresses = leasable_addresses(address);
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const Gid& gid) { return is_ours(lease_name(user_, service, gid)); });
}

bool UnixRendezvous::hand_to(const Neighbours& neighbours, const std::string& mailbox,
                             std::uint32_t user, const CmDatagram& request) {
    const Letter letter{neighbours.tokens_of(user), request};
    // What finds a full box waits here, within bounds; beyond them the peer repeats itself.
    Posted posted = Posted::Full;
    if (!backlog_.waits_for(mailbox))
        posted = post(mailbox, letter,
                      [&](const ucred& owner) { return neighbours.speaks_for(user, owner); });
    if (posted == Posted::Full) (void)backlog_.add(mailbox, user, letter, monotonic_now());
    return posted != Posted::Nobody;
}

Instant UnixRendezvous::retry(Instant now) {
    if (backlog_.empty()) return kNever;
    const Neighbours neighbours = neighbours_();
    return backlog_.retry(
        now, [&](const std::string& mailbox, std::uint32_t user, const Letter& letter) {
            return post(mailbox, letter,
                        [&](const ucred& owner) { return neighbours.speaks_for(user, owner); });
        });
}

// Nobody knows whose it is, and a peer that gave up says it only once, so everybody looks. What
// finds a full box is lost, as on the network: the peer will then refuse our answer.
bool UnixRendezvous::offer_to_all(const CmDatagram& message) {
    const Instant now = monotonic_now();
    if (now < next_offer_to_all_) return false;
    next_offer_to_all_ = now + kOfferToAllGap;
    const Neighbours neighbours = neighbours_();
    std::vector<std::uint32_t> users = neighbours.guest_users();
    std::erase(users, user_);
    users.push_back(user_);
    bool taken = false;
    for (const std::uint32_t user : users) {
        const Letter letter{neighbours.tokens_of(user), message};
        const auto trusts = [&](const ucred& owner) { return neighbours.speaks_for(user, owner); };
        for (std::uint32_t slot = 1; slot < kSlots; ++slot) {
            const std::string name = mailbox_name(user, slot);
            if (!is_ours(name)) taken |= post(name, letter, trusts) == Posted::Taken;
        }
    }
    return taken;
}

bool UnixRendezvous::offer(const CmDatagram& request) {
    const std::optional<wire::CmMad> mad = wire::parse_cm_mad(request.mad);
    if (!mad) return false;
    if (mad->attribute == wire::CmAttribute::Rej) return offer_to_all(request);
    // REQ and SIDR_REQ have the service id at the same place; other messages name no service.
    if (mad->attribute != wire::CmAttribute::Req && mad->attribute != wire::CmAttribute::SidrReq)
        return false;
    const std::uint64_t service = load_be64(std::span(request.mad).subspan<32, 8>());
    const Gid named = wire::named_address(request.source, request.destination, *mad);
    // Who has the port answers for it: two that have it by different names and do not listen would
    // hand a request to each other for ever.
    if (is_leased(service, named)) return false;
    const Neighbours neighbours = neighbours_();
    const auto hand_to_user = [&](std::uint32_t user) {
        const std::vector<Gid> addresses = leasable_addresses(named);
        return std::any_of(addresses.begin(), addresses.end(), [&](const Gid& address) {
            return hand_to(neighbours, lease_name(user, service, address), user, request);
        });
    };
    if (hand_to_user(user_)) return true;
    for (const std::uint32_t guest : neighbours.guest_users())
        if (guest != user_ && hand_to_user(guest)) return true;
    return false;
}

void UnixRendezvous::drain(std::vector<CmDatagram>& out) {
    for (const std::uint64_t lease : called_) {
        const auto found = boxes_.find(static_cast<std::uint32_t>(lease));
        if (found != boxes_.end()) drain_box(found->second, out);
    }
    called_.clear();
}

void UnixRendezvous::drain_box(const Mailbox& box, std::vector<CmDatagram>& out) {
    const Neighbours neighbours = neighbours_();
    const Instant until = monotonic_now() + kReadPatience;
    for (int i = 0; i < Mailbox::kLettersMax; ++i) {
        const std::optional<Mailbox::Arrival> arrival = box.next();
        if (!arrival) return;
        const bool known = neighbours.speaks_for(user_, arrival->sender) ||
                           neighbours.speaks_for(neighbours.owner, arrival->sender);
        // Strangers are not waited for.
        const std::optional<Letter> letter = Mailbox::read(*arrival, known ? until : Instant{});
        // A stranger with a token is a process of the port's owner that changed its user.
        if (letter && (known || have_one_in_common(letter->tokens, neighbours.tokens)))
            out.push_back(letter->message);
    }
}

void UnixRendezvous::abandon() {
    boxes_.clear();
    epoll_.reset();
    doorbell_.close();
}

}  // namespace feroce::port
