#include "port/udp_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/shortage.hpp"
#include "port/address.hpp"
#include "port/clock.hpp"
#include "port/interfaces.hpp"

namespace feroce::port {
namespace {

// While packets come by rings, sockets are mostly silent, and an empty look costs a system call.
constexpr Duration kRingsAreHot = std::chrono::milliseconds(1);
constexpr Duration kSocketGap = std::chrono::microseconds(20);
// How often rings of members that are gone are looked for while packets come.
constexpr Duration kSweepGap = std::chrono::seconds(1);
// Who could not be tied, or has ended but a moment ago, is looked at again after this. A member's
// peers shall know of its death within 2 s.
constexpr Duration kLookGap = std::chrono::milliseconds(500);
// Batches that a socket can hold, about.
constexpr int kDrainMax = 256;

}  // namespace

Result<std::unique_ptr<host::HostPort>> UdpPort::open(GroupMembership membership,
                                                      Settings settings) {
    std::unique_ptr<UdpPort> out(new UdpPort(std::move(membership), std::move(settings)));
    if (!out->open_waiting()) return Error{errno, "no epoll set for the UDP port"};
    out->learn_addresses();
    return std::unique_ptr<host::HostPort>(std::move(out));
}

UdpPort::UdpPort(GroupMembership membership, Settings settings)
    : membership_(std::move(membership)),
      network_(std::move(settings.network)),
      devices_(std::move(settings.devices)),
      sender_(network_, addresses_, settings.random, settings.port, settings.meddlers),
      v4_(membership_.socket_v4(), settings.meddlers.capture),
      v6_(membership_.socket_v6(), settings.meddlers.capture),
      handed_over_(membership_.group(), membership_.slot(), settings.meddlers.capture),
      capture_(settings.meddlers.capture),
      ring_sender_({membership_.group().table(), addresses_, settings.random,
                    membership_.group().parcel_sender(), uses_rings(settings), settings.budget},
                   membership_.slot()),
      ring_receiver_(membership_.group().table(), membership_.slot()),
      ties_(membership_.group().ties(membership_.slot())) {
    v4_.tell_destinations(false);
    v6_.tell_destinations(false);
    if (handed_over_.fd() >= 0)
        membership_.group().table().set_parcel_name(membership_.slot(), handed_over_.name());
    membership_.group().table().set_takes_ties(membership_.slot(), is_watcher());
    membership_.group().table().set_owner(membership_.slot(), settings.random.next() | 1,
                                          uses_rings(settings));
}

bool UdpPort::uses_rings(const Settings& settings) {
    return settings.rings && settings.meddlers.capture == nullptr &&
           settings.meddlers.faults == nullptr;
}

bool UdpPort::open_waiting() {
    if (!waiter_.open()) return false;
    sender_.tell_errors_by(waiter_.errors_set());
    return ring_receiver_.open() && waiter_.add_arrivals(membership_.socket_v4()) &&
           waiter_.add_arrivals(membership_.socket_v6()) &&
           waiter_.add_arrivals(ring_receiver_.bell()) && waiter_.add_rare(handed_over_.fd()) &&
           waiter_.add_listener(membership_.group().listener()) && waiter_.add_ends(ties_.fd());
}

bool UdpPort::poll(Instant now, device::Engine& engine) {
    // Most polls find nothing there, and a load is cheaper than an exchange.
    std::uint8_t look = look_.load(std::memory_order_relaxed);
    if (look != 0) look = look_.exchange(0, std::memory_order_relaxed);
    const bool by_ring = poll_rings(now, engine, (look & kLookForDeparted) != 0);
    const bool hot = now - last_ring_packet_ < kRingsAreHot;
    if (look == 0 && hot && now - last_socket_look_ < kSocketGap) return by_ring;
    last_socket_look_ = now;
    if (hot) look |= kLookAtBoth;  // It was long ago.
    return poll_sockets(now, engine, look) || by_ring;
}

bool UdpPort::poll_rings(Instant now, device::Engine& engine, bool somebody_ended) {
    if (ring_receiver_.take_begun()) drain_sockets(now, engine);
    const bool received = ring_receiver_.poll(now, engine);  // What has begun is there.
    if (received) last_ring_packet_ = now;
    if (now < next_sweep_ && !somebody_ended) return received;
    next_sweep_ = now + kSweepGap;
    ring_sender_.forget_departed();
    const SlotSet departed = ring_receiver_.departed();
    if (departed.empty()) return received;
    drain_sockets(now, engine);
    return ring_receiver_.deliver_rest(now, engine, departed) || received;
}

void UdpPort::drain_sockets(Instant now, device::Engine& engine) {
    for (int i = 0; i < kDrainMax && poll_sockets(now, engine, kLookAtBoth); ++i) continue;
}

bool UdpPort::poll_sockets(Instant now, device::Engine& engine, std::uint8_t look) {
    UdpReceiver& hot = v6_is_hot_ ? v6_ : v4_;
    UdpReceiver& cold = v6_is_hot_ ? v4_ : v6_;
    bool received = hot.poll(now, engine);
    if ((look & kLookAtHandedOver) != 0)
        received = handed_over_.poll(now, engine, *this) || received;
    // An empty look costs a system call: the family that is silent gets one in sixteen.
    if ((look & kLookAtBoth) == 0 && ++cold_polls_ % 16 != 0) return received;
    if (!cold.poll(now, engine)) return received;
    if (!received) v6_is_hot_ = !v6_is_hot_;
    return true;
}

bool UdpPort::poll_all(Instant now, device::Engine& engine) {
    look_.fetch_or(kLookAtBoth | kLookAtHandedOver, std::memory_order_relaxed);
    return poll(now, engine);
}

int UdpPort::requests_fd() {
    if (!requests_) requests_.emplace(membership_.group(), capture_);
    return requests_->fd();
}

bool UdpPort::poll_requests(Instant now, device::Engine& engine) {
    return requests_ && requests_->poll(now, engine);
}

bool UdpPort::wait(Instant until) {
    look_for_deaths(false);
    const PortWaiter::Woken woken = waiter_.wait(std::min({until, next_look_, error_news_.due()}));
    if (woken.errors) (void)error_news_.note();
    look_for_deaths(woken.ended);
    // A newcomer for whom there is no memory comes again.
    if (woken.newcomer) (void)with_memory([this] { waiter_.serve(membership_.group()); });
    if (woken.arrived) {
        ring_receiver_.answer_bell();
        look_.fetch_or(kLookAtBoth, std::memory_order_relaxed);
    }
    if (woken.rare) look_.fetch_or(kLookAtHandedOver, std::memory_order_relaxed);
    // The next poll reads the rest of the rings of one that has ended, and gives them back.
    const bool arrived = woken.arrived || woken.rare || woken.ended || ring_receiver_.overlooked();
    if (arrived) ring_receiver_.woken();
    return arrived;
}

// The first time a moment after the port was opened, when others may find us in the table. One that
// ends closes its descriptors one after the other: its slot may be free a moment after its tie has
// ended.
void UdpPort::look_for_deaths(bool somebody_ended) {
    const bool missing = tie_missing_.load();
    if (!somebody_ended && !missing && next_look_ == kNever) return;
    const Instant now = monotonic_now();
    if (!somebody_ended && !missing && now < next_look_) return;
    if (missing) tie_missing_.store(false);
    look_.fetch_or(kLookForDeparted, std::memory_order_relaxed);
    bool again = somebody_ended && ties_.take_ended();
    again |= !ties_.renew(is_watcher());
    // What there is no memory for comes with the next look.
    if (!with_memory([&] { again |= membership_.group().look_for_deaths(); })) again = true;
    next_look_ = again ? now + kLookGap : kNever;
}

void UdpPort::arm() {
    waiter_.arm();
    ring_receiver_.arm();
}

void UdpPort::disarm(bool for_long) {
    ring_receiver_.disarm();
    waiter_.disarm(for_long);
}

bool UdpPort::interfaces_changed() {
    const bool changed = waiter_.interfaces_changed();
    if (changed) learn_addresses();
    return changed;
}

// Without memory for the list the last one stays.
void UdpPort::learn_addresses() {
    (void)with_memory([this] { addresses_.set(interfaces({})); });
}

bool UdpPort::has_suspects() {
    return error_news_.due() != kNever && error_news_.take(monotonic_now());
}

cm::Suspects UdpPort::take_suspects() {
    sender_.look_at_errors();
    waiter_.watch_errors();
    return sender_.take_suspects();
}

void UdpPort::take(Instant now, device::Engine& engine, const RingMessage& message, Fd attached) {
    if (message.kind == RingMessage::Kind::Acceptance) {
        hold(message.from);
        ring_sender_.accepted(message, std::move(attached));
        sender_.forget_refusals();  // They may be of a path that it will not see again.
    } else if (message.kind == RingMessage::Kind::Offer) {
        hold(message.from);  // First, so that it need not make one itself.
        if (ring_receiver_.replaces_another(message)) drain_sockets(now, engine);
        ring_receiver_.accept(now, engine, message, std::move(attached),
                              membership_.group().parcel_sender());
    } else {
        ties_.accept(message, std::move(attached));
    }
}

void UdpPort::hold(std::uint32_t slot) {
    if (membership_.group().owns(static_cast<SlotNumber>(slot)) || ties_.hold(slot)) return;
    tie_missing_.store(true);
    waiter_.wake();
}

// Packets to one destination keep their order, but for a ring that is full; between destinations
// there is none.
void UdpPort::transmit(std::span<const transport::TransmitRun> runs) {
    std::size_t by_udp = 0;  // Where those begin that were not sent yet.
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::uint32_t by_ring = ring_sender_.send(runs[i]);
        if (by_ring == 0) continue;
        if (by_udp < i) send(runs.subspan(by_udp, i - by_udp));
        by_udp = i + 1;
        if (by_ring < runs[i].packet_count) transmit_rest(runs[i], by_ring);
    }
    ring_sender_.publish();
    if (by_udp < runs.size()) send(runs.subspan(by_udp));
}

void UdpPort::send(std::span<const transport::TransmitRun> runs) {
    ring_sender_.publish();  // What was put into rings comes first.
    sender_.transmit(runs);
    if (sender_.has_suspects() && error_news_.note()) waiter_.wake();
}

bool UdpPort::has_room(const transport::Path& path, SlotNumber slot, std::size_t size) {
    return ring_sender_.has_room(path, slot, static_cast<std::uint32_t>(size));
}

ByteSpan UdpPort::place(const transport::Path&, SlotNumber slot, std::size_t size,
                        std::uint32_t packets) {
    return ring_sender_.place(slot, static_cast<std::uint32_t>(size), packets);
}

// What is left of a run that a ring had no room for.
void UdpPort::transmit_rest(transport::TransmitRun run, std::uint32_t sent) {
    run.bytes = run.bytes.subspan(std::size_t{sent} * run.segment_size);
    run.packet_count -= sent;
    send({&run, 1});
}

void UdpPort::tell_destinations() {
    v4_.tell_destinations(true);
    v6_.tell_destinations(true);
}

bool UdpPort::change_membership(const Gid& group, std::uint32_t interface, bool join) {
    if (group.is_v4()) {
        ip_mreqn request{};
        request.imr_multiaddr.s_addr = htonl(group.v4());
        request.imr_ifindex = static_cast<int>(interface);
        return ::setsockopt(membership_.socket_v4(), IPPROTO_IP,
                            join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request,
                            sizeof request) == 0;
    }
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.raw.data(), group.raw.size());
    request.ipv6mr_interface = interface;
    return membership_.socket_v6() >= 0 &&
           ::setsockopt(membership_.socket_v6(), IPPROTO_IPV6,
                        join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &request,
                        sizeof request) == 0;
}

std::vector<host::Interface> UdpPort::interfaces(std::string_view only) const {
    return network_->run([only] { return list_interfaces(only); });
}

bool UdpPort::join_group(const Gid& group) {
    // On all of them: a queue pair hears its group through whichever device it belongs to.
    bool joined = false;
    for (const host::Interface& i : interfaces(devices_))
        joined |= change_membership(group, i.index, true);
    return joined;
}

// Without memory for the list it stays a member, as long as the socket is open.
void UdpPort::leave_group(const Gid& group) try {
    for (const host::Interface& i : interfaces(devices_)) change_membership(group, i.index, false);
} catch (const std::bad_alloc&) {
}

}  // namespace feroce::port
