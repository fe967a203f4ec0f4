#include "port/relay_server.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/shortage.hpp"
#include "port/clock.hpp"
#include "port/epoll_calls.hpp"
#include "port/group_socket.hpp"
#include "port/parcel.hpp"
#include "port/port_group.hpp"
#include "port/socket_calls.hpp"
#include "wire/mad.hpp"

namespace feroce::port {
namespace {

// One user cannot take all connections.
constexpr std::size_t kConnectionsPerUser = kSeatsPerUser + 4;
constexpr std::size_t kConnectionsMax = 128;
// How often a relay looks whether the locks that it lacks are free.
constexpr int kLockGapMs = 100;
// After which a relay tries again what it had no memory for.
constexpr int kShortageMs = 10;
constexpr int kConnectionBytes = 4 * 1024 * 1024;

// epoll_event::data: a guest's id and which of its fds, or one of ours with id 0.
enum Watched : std::uint64_t { kConnection, kV4, kV6, kSources };
enum Ours : std::uint64_t { kBell = 0, kParcels = 1 };

bool watch(int set, int operation, int fd, std::uint32_t events, std::uint64_t source) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = source;
    return kernel_epoll_ctl(set, operation, fd, &event) == 0;
}

bool has_hung_up(int connection) {
    pollfd state{connection, 0, 0};
    return ::poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
}

std::int64_t in_ns(Instant instant) {
    return instant.time_since_epoch().count();
}

}  // namespace

std::unique_ptr<RelayServer> RelayServer::start(PortGroup& group, RandomSource& random,
                                                std::function<void()> requests_wanted) {
    std::unique_ptr<RelayServer> server(new RelayServer(group, random, std::move(requests_wanted)));
    if (!server->open()) return nullptr;
    server->thread_ = std::make_unique<Thread>([raw = server.get()] { raw->body(); });
    return server->thread_->start() == 0 ? std::move(server) : nullptr;
}

bool RelayServer::open() {
    epoll_ = Fd(kernel_epoll_create());
    doorbell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    parcels_ = make_parcel_socket(parcels_name_);
    buffer_.resize(kParcelMax);
    return epoll_.valid() && doorbell_.valid() && parcels_.valid() &&
           watch(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), EPOLLIN, kBell) &&
           watch(epoll_.get(), EPOLL_CTL_ADD, parcels_.get(), EPOLLIN, kParcels);
}

void RelayServer::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    ring(doorbell_.get());
    thread_.reset();
}

RelayServer::~RelayServer() {
    stop();
    // The seats are left as they are: guests come back for them, through another member.
    for (const auto& [id, guest] : guests_)
        if (guest.has_lock) group_.table().unlock(guest.slot);
}

void RelayServer::abandon() {
    for (auto& [id, guest] : guests_) guest.connection.reset();
    for (auto& arrival : arrivals_) arrival.first.reset();
    epoll_.reset();
    doorbell_.reset();
    parcels_.reset();
}

void RelayServer::admit(Fd connection, std::uint32_t user) {
    {
        const std::lock_guard lock(mutex_);
        if (arrivals_.size() >= kConnectionsMax) return;
        arrivals_.emplace_back(std::move(connection), user);
    }
    ring(doorbell_.get());
}

void RelayServer::body() {
    for (;;) {
        std::array<epoll_event, 16> events;
        const int patience = lacks_locks() ? kLockGapMs : -1;
        const int count = kernel_epoll_wait(epoll_.get(), events.data(), events.size(), patience);
        {
            const std::lock_guard lock(mutex_);
            if (stop_) return;
        }
        for (int i = 0; i < count; ++i) {
            const epoll_event& e = events[static_cast<std::size_t>(i)];
            // A guest for which there is no memory hears nothing, and comes again.
            if (!with_memory([&] { handle(e.data.u64, e.events); }))
                ::poll(nullptr, 0, kShortageMs);
        }
        if (lacks_locks()) (void)with_memory([this] { lock_slots(monotonic_now()); });
    }
}

void RelayServer::handle(std::uint64_t source, std::uint32_t events) {
    if (source == kBell) return take_arrivals();
    if (source == kParcels) return take_parcels();
    const auto id = static_cast<Id>(source / kSources);
    const auto found = guests_.find(id);
    if (found == guests_.end()) return;  // Dismissed earlier in this batch of events.
    Guest& guest = found->second;
    if (source % kSources == kV4) return forward(id, guest, *guest.v4);
    if (source % kSources == kV6) return forward(id, guest, *guest.v6);
    if ((events & EPOLLOUT) != 0 && !resume(id, guest)) return dismiss(id);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) hear(id, guest);
}

void RelayServer::take_arrivals() {
    std::uint64_t value;
    (void)!::read(doorbell_.get(), &value, sizeof value);
    const ForkGate::Hold hold(group_.fork_gate());
    std::vector<std::pair<Fd, std::uint32_t>> arrivals;
    {
        const std::lock_guard lock(mutex_);
        arrivals.swap(arrivals_);
    }
    for (auto& [connection, user] : arrivals) {
        if (!has_room_for(user)) continue;
        // The larger the better, but the default does too. FORCE is root's.
        const int bytes = kConnectionBytes;
        if (::setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
            ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        const Id id = next_id_++;
        if (!watch(epoll_.get(), EPOLL_CTL_ADD, connection.get(), EPOLLIN,
                   id * kSources + kConnection))
            continue;
        Guest& guest = guests_[id];
        guest.connection = std::move(connection);
        guest.user = user;
    }
}

bool RelayServer::has_room_for(std::uint32_t user) const {
    const auto same = std::count_if(guests_.begin(), guests_.end(),
                                    [user](const auto& g) { return g.second.user == user; });
    return guests_.size() < kConnectionsMax && static_cast<std::size_t>(same) < kConnectionsPerUser;
}

void RelayServer::hear(Id id, Guest& guest) {
    GuestMessage message;
    const ssize_t n = ::recv(guest.connection.get(), &message, sizeof message, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    const bool valid = n == sizeof message && message.magic == GuestMessage::kMagic;
    if (!valid || !guest.messages.allows(monotonic_now())) return dismiss(id);
    if (message.kind == GuestMessage::Kind::Ask && guest.slot == 0) return seat(id, guest, message);
    confirm(guest);
    if (message.kind == GuestMessage::Kind::AreYouThere && guest.slot != 0) return;
    if (message.kind == GuestMessage::Kind::WantRequests && guest.slot != 0)
        return requests_wanted_();
    dismiss(id);
}

void RelayServer::seat(Id id, Guest& guest, const GuestMessage& ask) {
    // A question that lay here while we were stopped. The guest has given up on it.
    if (has_hung_up(guest.connection.get())) return dismiss(id);
    int refusal = ENOMEM;
    // A guest that is told of its seat hears what arrives there, so all of it is made before.
    (void)with_memory([&] { refusal = make_seat(id, guest, ask); });
    GuestMessage answer{.kind = GuestMessage::Kind::Answer, .refusal = refusal};
    if (refusal == 0) {
        answer.slot = guest.slot;
        answer.token = guest.token;
    }
    const ssize_t sent =
        ::send(guest.connection.get(), &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (refusal != 0 || sent != sizeof answer) dismiss(id);
}

int RelayServer::make_seat(Id id, Guest& guest, const GuestMessage& ask) {
    if (!seatings_.allows(guest.user, monotonic_now())) return EAGAIN;
    if (const int refusal = find_slot(guest, ask); refusal != 0) return refusal;
    guest.v4.emplace(group_.socket_v4(guest.slot), nullptr);
    guest.v6.emplace(group_.socket_v6(guest.slot), nullptr);
    return watch_sockets(id, guest, true) ? 0 : ENOMEM;
}

bool RelayServer::holds(std::uint32_t slot) const {
    return std::any_of(guests_.begin(), guests_.end(),
                       [slot](const auto& g) { return g.second.slot == slot; });
}

// A slot whose guest lost its relay rests from when that is first seen.
void RelayServer::mark_orphans(Instant now) {
    SlotTable& table = group_.table();
    for (std::uint32_t slot = 1; slot < table.slots(); ++slot) {
        if (!is_guest_slot(slot) || table.seat(slot).guest != SlotTable::Guest::Seated ||
            holds(slot))
            continue;
        if (!table.try_lock(slot)) continue;
        const SlotTable::Seat seat = table.seat(slot);
        if (seat.guest == SlotTable::Guest::Seated)
            table.set_seat(slot, {SlotTable::Guest::Orphaned, seat.user, in_ns(now), 0});
        table.unlock(slot);
    }
}

std::vector<GuestSlot> RelayServer::look_at_slots() const {
    std::vector<GuestSlot> out;
    for (std::uint32_t slot = 1; slot < group_.table().slots(); ++slot)
        if (is_guest_slot(slot))
            out.push_back({slot, group_.table().seat(slot),
                           holds(slot) || group_.table().locked_by_another(slot)});
    return out;
}

bool RelayServer::may_grow() const {
    rlimit open_files{};
    return ::getrlimit(RLIMIT_NOFILE, &open_files) == 0 &&
           may_grow_for_guests(group_.table().chunks(), (group_.has_v6() ? 2 : 1) * kChunkSlots,
                               open_files.rlim_cur);
}

int RelayServer::find_slot(Guest& guest, const GuestMessage& ask) {
    const Instant now = monotonic_now();
    guest.former_token = ask.token;
    if (take_over(guest, ask, now)) return 0;
    mark_orphans(now);
    for (;;) {
        const std::vector<GuestSlot> slots = look_at_slots();
        const std::vector<std::uint32_t> fit = slots_for(slots, guest.user, ask.slot, now);
        for (const std::uint32_t slot : fit)
            if (take(guest, slot, slot == ask.slot, now)) return 0;
        const bool needs_more = fit.empty() && has_share_left(slots, guest.user, now);
        if (!needs_more || !may_grow()) return EUSERS;
        if (const Result<void> grown = group_.grow(); !grown)
            return grown.error().code == EAGAIN ? EAGAIN : EUSERS;
    }
}

bool RelayServer::take(Guest& guest, std::uint32_t slot, bool again, Instant now) {
    SlotTable& table = group_.table();
    if (holds(slot) || !table.try_lock(slot)) return false;
    // Another relay may have had it since we looked.
    if (!may_take(table.seat(slot), guest.user, again, now) ||
        !group_.open_sockets(static_cast<SlotNumber>(slot))) {
        table.unlock(slot);
        return false;
    }
    guest.has_lock = true;
    guest.returns = again;
    sit(guest, slot, now);
    if (!again) {
        drain(group_.socket_v4(guest.slot));
        if (group_.has_v6()) drain(group_.socket_v6(guest.slot));
    }
    return true;
}

// From a relay that the guest says is stopped. That is its own affair: nobody else has the token.
bool RelayServer::take_over(Guest& guest, const GuestMessage& ask, Instant now) {
    if (!is_guest_slot(ask.slot) || ask.slot >= group_.table().slots()) return false;
    SlotTable& table = group_.table();
    if (!may_take_over(table.seat(ask.slot), guest.user, ask.token)) return false;
    // Ourselves, if we run again before the guest found another.
    const auto before = std::find_if(guests_.begin(), guests_.end(),
                                     [&](const auto& g) { return g.second.slot == ask.slot; });
    if (before != guests_.end()) dismiss(before->first);
    if (!group_.open_sockets(static_cast<SlotNumber>(ask.slot))) return false;
    guest.has_lock = table.try_lock(ask.slot);
    guest.returns = true;
    sit(guest, ask.slot, now);
    return true;
}

void RelayServer::sit(Guest& guest, std::uint32_t slot, Instant now) {
    guest.slot = static_cast<SlotNumber>(slot);
    guest.token = random_.next();
    write_seat(guest, now);
    group_.table().set_parcel_name(slot, parcels_name_);
}

void RelayServer::write_seat(const Guest& guest, Instant now) {
    group_.table().set_seat(guest.slot, {SlotTable::Guest::Seated, guest.user, in_ns(now),
                                         guest.token, guest.returns ? guest.former_token : 0});
}

// It has said something, so it knows its token.
void RelayServer::confirm(Guest& guest) {
    if (!std::exchange(guest.returns, false) || guest.slot == 0) return;
    const SlotTable::Seat seat = group_.table().seat(guest.slot);
    // Another member may have taken it over.
    if (seat.token == guest.token)
        write_seat(guest, Instant(std::chrono::nanoseconds(seat.since_ns)));
}

bool RelayServer::lacks_locks() const {
    return std::any_of(guests_.begin(), guests_.end(),
                       [](const auto& g) { return g.second.slot != 0 && !g.second.has_lock; });
}

void RelayServer::lock_slots(Instant now) {
    SlotTable& table = group_.table();
    std::vector<Id> gone;
    for (auto& [id, guest] : guests_) {
        if (guest.slot == 0 || guest.has_lock) continue;
        const SlotTable::Seat seat = table.seat(guest.slot);
        // Somebody may have found the slot without a lock before us.
        const bool orphaned = seat.guest == SlotTable::Guest::Orphaned && seat.user == guest.user;
        if (seat.token != guest.token && !orphaned) {
            gone.push_back(id);
        } else if (table.try_lock(guest.slot)) {
            guest.has_lock = true;
            write_seat(guest, now);
            table.set_parcel_name(guest.slot, parcels_name_);
        }
    }
    for (const Id id : gone) dismiss(id);
}

bool RelayServer::watch_sockets(Id id, Guest& guest, bool on) {
    const int operation = on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    bool good =
        watch(epoll_.get(), operation, group_.socket_v4(guest.slot), EPOLLIN, id * kSources + kV4);
    if (group_.has_v6())
        good &= watch(epoll_.get(), operation, group_.socket_v6(guest.slot), EPOLLIN,
                      id * kSources + kV6);
    const std::uint32_t events = EPOLLIN | (on ? 0u : static_cast<std::uint32_t>(EPOLLOUT));
    good &= watch(epoll_.get(), EPOLL_CTL_MOD, guest.connection.get(), events,
                  id * kSources + kConnection);
    return good;
}

void RelayServer::forward(Id id, Guest& guest, UdpReceiver& from) {
    from.poll_merged([&](const device::Datagram& datagram, std::size_t segment_size) {
        // A NIC may have merged packets for several slots: each to its owner.
        device::Datagram packet = datagram;
        ByteView rest = datagram.bytes;
        const std::size_t size = segment_size == 0 ? rest.size() : segment_size;
        const auto ours = [&guest](ByteView p) {
            const SlotNumber slot = wire::steered_slot(p);
            return slot == guest.slot || (slot == 0 && is_for_general_services(p));
        };
        bool all = true;
        for (ByteView p = rest; !p.empty(); p = p.subspan(std::min(size, p.size()))) all &= ours(p);
        if (all) return pass_on(id, guest, datagram, segment_size);
        for (; !rest.empty(); ++packet.id_hint) {
            packet.bytes = rest.first(std::min(size, rest.size()));
            rest = rest.subspan(packet.bytes.size());
            if (ours(packet.bytes))
                pass_on(id, guest, packet, 0);
            else
                group_.hand_over(packet);
        }
    });
}

void RelayServer::pass_on(Id id, Guest& guest, const device::Datagram& datagram,
                          std::size_t segment_size) {
    if (guest.blocked.empty() &&
        send_parcel(guest.connection.get(), nullptr, datagram, segment_size))
        return;
    if (guest.blocked.empty() && errno != EAGAIN && errno != ENOBUFS) return;  // Soon dismissed.
    if (guest.blocked.empty()) watch_sockets(id, guest, false);
    const ParcelHeader header = parcel_header(datagram, segment_size);
    std::vector<std::byte> kept(sizeof header + datagram.bytes.size());
    std::memcpy(kept.data(), &header, sizeof header);
    std::copy(datagram.bytes.begin(), datagram.bytes.end(), kept.data() + sizeof header);
    guest.blocked.push_back(std::move(kept));
}

bool RelayServer::resume(Id id, Guest& guest) {
    while (!guest.blocked.empty()) {
        const std::vector<std::byte>& parcel = guest.blocked.front();
        if (::send(guest.connection.get(), parcel.data(), parcel.size(),
                   MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
            (errno == EAGAIN || errno == ENOBUFS))
            return true;
        guest.blocked.pop_front();
    }
    return watch_sockets(id, guest, true);
}

void RelayServer::take_parcels() {
    // A bound, so that guests get their turn.
    for (int i = 0; i < 16; ++i) {
        ByteView parcel = receive_from_member(parcels_.get(), group_, buffer_, nullptr);
        if (parcel.empty()) return;
        if (parcel.size() <= sizeof(ParcelHeader)) continue;
        ParcelHeader header;
        std::memcpy(&header, parcel.data(), sizeof header);
        const SlotNumber slot = wire::steered_slot(parcel.subspan(sizeof header));
        for (auto& [id, guest] : guests_)
            if (guest.slot != 0 && guest.slot == slot && guest.blocked.empty())
                (void)::send(guest.connection.get(), parcel.data(), parcel.size(),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

void RelayServer::dismiss(Id id) {
    const ForkGate::Hold hold(group_.fork_gate());
    const auto found = guests_.find(id);
    const Guest& guest = found->second;
    if (guest.slot != 0) {
        // The group's sockets live on, so they do not leave the epoll set by themselves.
        kernel_epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, group_.socket_v4(guest.slot), nullptr);
        if (group_.has_v6())
            kernel_epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, group_.socket_v6(guest.slot), nullptr);
        group_.close_sockets(guest.slot);
        give_up_seat(guest);
        if (guest.has_lock) group_.table().unlock(guest.slot);
    }
    guests_.erase(found);
}

// What a guest that may come back finds: its slot, which nobody else gets for a while, or, where
// another relay holds the lock, the token that it knows.
void RelayServer::give_up_seat(const Guest& guest) {
    SlotTable& table = group_.table();
    // Another member may have taken it over.
    if (table.seat(guest.slot).token != guest.token) return;
    SlotTable::Seat after{SlotTable::Guest::Left, guest.user, in_ns(monotonic_now()), 0};
    if (guest.returns) after.guest = SlotTable::Guest::Orphaned;
    if (guest.returns && !guest.has_lock) {
        after.guest = SlotTable::Guest::Seated;
        after.token = guest.former_token;
    }
    table.set_seat(guest.slot, after);
}

}  // namespace feroce::port
