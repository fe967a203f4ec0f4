#include "port/unix_rendezvous.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/assert.hpp"
#include "port/clock.hpp"
#include "port/event_set.hpp"
#include "port/fd.hpp"
#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

using namespace std::chrono_literals;

// epoll_event::data of what is not a lease; leases have small numbers.
constexpr std::uint64_t kDoorbell = ~std::uint64_t{0};
constexpr std::uint64_t kRequests = kDoorbell - 1;
// The range Linux gives out for port 0 by default.
constexpr std::uint16_t kFirstFreePort = 32768;
constexpr std::uint16_t kFreePorts = 28232;
constexpr int kFreePortTries = 256;
constexpr std::size_t kBlockedMax = 4096;
constexpr int kTriesMax = 1000;                        // One a millisecond.
constexpr int kQueueMax = 128;                         // Requests that a listener has not read yet.
constexpr std::uint32_t kMailbox = ~std::uint32_t{0};  // As a lease; others have small numbers.
// Everybody is asked for what a stranger can send, so not more often than this.
constexpr Duration kOfferToAllGap = 50ms;

std::string name_of(std::uint32_t user, std::uint64_t service, const Gid& address) {
    return "feroce-cm-" + std::to_string(user) + "-" + std::to_string(service) + "-" +
           to_string(address);
}

// The addresses by which a port that `destination` reaches can be leased.
std::vector<Gid> names_of_port(const Gid& destination) {
    if (destination.is_v4()) return {destination, Gid::from_v4(0), Gid{}};
    return {destination, Gid{}};
}

// Where a process gets what is offered to all. Slots are unique among those that share the port.
std::string mailbox_of(std::uint32_t user, std::uint32_t slot) {
    return "feroce-cm-" + std::to_string(user) + "-slot-" + std::to_string(slot);
}

struct UnixName {
    sockaddr_un address{};
    socklen_t length = 0;

    explicit UnixName(const std::string& name) {
        address.sun_family = AF_UNIX;  // A leading zero byte makes the name abstract.
        ASSERT(name.size() < sizeof address.sun_path);
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A message on its way between processes of this machine, as it is in memory.
struct Letter {
    Tokens tokens;
    CmDatagram message;
};
static_assert(std::is_trivially_copyable_v<Letter>);

// -1 with errno set if the name is taken.
int bind_name(const std::string& name) {
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    const UnixName address(name);
    if (::bind(fd, address.get(), address.length) == 0 && ::listen(fd, kQueueMax) == 0) return fd;
    const int code = errno;
    ::close(fd);
    errno = code;
    return -1;
}

std::optional<ucred> process_behind(int connection) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
    return peer;
}

// The sender connects and sends, so that what is not there yet comes at once. Strangers are not
// waited for.
bool receive_letter(int connection, bool wait, Letter& out) {
    const timeval patience{0, 50'000};
    ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return ::recv(connection, &out, sizeof out, wait ? 0 : MSG_DONTWAIT) == sizeof out;
}

bool add_to(int set, int fd, std::uint64_t source) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = source;
    return ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Result<std::unique_ptr<host::Rendezvous>> UnixRendezvous::open(
    const Settings& settings, RandomSource& random, std::function<Neighbours()> neighbours) {
    std::unique_ptr<UnixRendezvous> out(
        new UnixRendezvous(settings.user, random, std::move(neighbours)));
    const int requests_fd = settings.requests_fd;
    out->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    out->doorbell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (out->epoll_ < 0 || out->doorbell_ < 0 || !add_to(out->epoll_, out->doorbell_, kDoorbell) ||
        (requests_fd >= 0 && !add_to(out->epoll_, requests_fd, kRequests)))
        return Error{errno, "no file descriptors for the connection manager"};
    out->open_mailbox(settings.slot);
    return std::unique_ptr<host::Rendezvous>(std::move(out));
}

// Without one (the name is taken) we only miss what is offered to all.
void UnixRendezvous::open_mailbox(std::uint8_t slot) {
    std::string name = mailbox_of(user_, slot);
    const int fd = bind_name(name);
    if (fd < 0) return;
    (void)hold(fd, kMailbox, std::move(name));
}

// Takes the socket, and watches it: false, with errno set, if that fails.
bool UnixRendezvous::hold(int fd, std::uint32_t lease, std::string name) {
    if (!add_to(epoll_, fd, lease)) {
        const int code = errno;
        ::close(fd);
        errno = code;
        return false;
    }
    held_[lease] = {fd, std::move(name)};
    return true;
}

UnixRendezvous::~UnixRendezvous() {
    abandon();
}

bool UnixRendezvous::wait(Instant until) {
    std::array<epoll_event, 16> events;
    const int count = wait_for_events(epoll_, events, until);
    called_.clear();
    bool requests = false;
    for (int i = 0; i < count; ++i) {
        const std::uint64_t source = events[static_cast<std::size_t>(i)].data.u64;
        std::uint64_t value;
        if (source == kDoorbell)
            (void)!::read(doorbell_, &value, sizeof value);
        else if (source == kRequests)
            requests = true;
        else
            called_.push_back(source);
    }
    return requests;
}

void UnixRendezvous::wake() {
    ring(doorbell_);
}

Result<PortLease> UnixRendezvous::lease(wire::PortSpace space, const Gid& address,
                                        std::uint16_t port) {
    const int tries = port == 0 ? kFreePortTries : 1;
    for (int i = 0; i < tries; ++i) {
        const std::uint16_t wanted =
            port != 0 ? port
                      : static_cast<std::uint16_t>(kFirstFreePort + random_.next() % kFreePorts);
        const std::string name = name_of(user_, wire::make_service_id(space, wanted).raw, address);
        const int fd = bind_name(name);
        const std::uint32_t id = next_id_++;
        if (fd >= 0 && hold(fd, id, name)) return PortLease{id, wanted};
        if (errno != EADDRINUSE) return Error{errno, "no unix socket for a port of rdma_cm"};
    }
    return Error{EADDRINUSE, "the rdma_cm port is taken on this address"};
}

void UnixRendezvous::end(const PortLease& lease) {
    const auto found = held_.find(lease.id);
    if (found == held_.end()) return;
    ::close(found->second.fd);  // Leaves the epoll set by itself.
    held_.erase(found);
}

bool UnixRendezvous::is_ours(const std::string& name) const {
    return std::any_of(held_.begin(), held_.end(),
                       [&](const auto& held) { return held.second.name == name; });
}

bool UnixRendezvous::is_leased(std::uint64_t service, const Gid& address) const {
    const std::vector<Gid> names = names_of_port(address);
    return std::any_of(names.begin(), names.end(),
                       [&](const Gid& gid) { return is_ours(name_of(user_, service, gid)); });
}

UnixRendezvous::Handed UnixRendezvous::try_hand(const Listener& to,
                                                const CmDatagram& request) const {
    const Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const UnixName address(to.name);
    if (!connection.valid() || ::connect(connection.get(), address.get(), address.length) != 0)
        return errno == EAGAIN || errno == EMFILE ? Handed::Full : Handed::Nobody;
    const std::optional<ucred> peer = process_behind(connection.get());
    if (!peer || !neighbours_().speaks_for(to.user, *peer)) return Handed::Nobody;
    const Letter letter{to.tokens, request};
    // If it has died since, the peer repeats itself.
    (void)!::send(connection.get(), &letter, sizeof letter, MSG_NOSIGNAL);
    return Handed::Taken;
}

bool UnixRendezvous::hand_to(const Listener& to, const CmDatagram& request) {
    const Handed handed = try_hand(to, request);
    // What finds a full queue waits here, within bounds; beyond them the peer repeats itself.
    if (handed == Handed::Full && blocked_.size() < kBlockedMax)
        blocked_.push_back({to, request, 0});
    return handed != Handed::Nobody;
}

bool UnixRendezvous::retry() {
    std::deque<Blocked> all;
    all.swap(blocked_);
    for (Blocked& b : all)
        if (try_hand(b.to, b.request) == Handed::Full && ++b.tries < kTriesMax)
            blocked_.push_back(std::move(b));
    return !blocked_.empty();
}

// Nobody knows whose it is, and a peer that gave up says it only once, so everybody looks. What
// finds a full queue is lost, as on the network: the peer will then refuse our answer.
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
        const Tokens tokens = neighbours.tokens_of(user);
        for (std::uint32_t slot = 1; slot < kSlots; ++slot) {
            const Listener other{mailbox_of(user, slot), user, tokens};
            if (!is_ours(other.name)) taken |= try_hand(other, message) == Handed::Taken;
        }
    }
    return taken;
}

bool UnixRendezvous::offer(const CmDatagram& request) {
    // REQ and SIDR_REQ have the service id at the same place; other messages name no service.
    const auto attribute = static_cast<wire::CmAttribute>(
        wire::MadHeader::parse(std::span(request.mad).first<wire::MadHeader::kSize>()).attribute);
    if (attribute == wire::CmAttribute::Rej) return offer_to_all(request);
    if (attribute != wire::CmAttribute::Req && attribute != wire::CmAttribute::SidrReq)
        return false;
    const std::uint64_t service = load_be64(std::span(request.mad).subspan<32, 8>());
    // Who has the port answers for it: two that have it by different names and do not listen would
    // hand a request to each other for ever.
    if (is_leased(service, request.destination)) return false;
    const Neighbours neighbours = neighbours_();
    if (hand_to_user(user_, neighbours.tokens_of(user_), service, request)) return true;
    for (const std::uint32_t guest : neighbours.guest_users())
        if (guest != user_ && hand_to_user(guest, neighbours.tokens_of(guest), service, request))
            return true;
    return false;
}

bool UnixRendezvous::hand_to_user(std::uint32_t user, const Tokens& tokens, std::uint64_t service,
                                  const CmDatagram& request) {
    const std::vector<Gid> names = names_of_port(request.destination);
    return std::any_of(names.begin(), names.end(), [&](const Gid& address) {
        return hand_to({name_of(user, service, address), user, tokens}, request);
    });
}

void UnixRendezvous::drain(std::vector<CmDatagram>& out) {
    for (const std::uint64_t lease : called_) drain_lease(lease, out);
    called_.clear();
}

void UnixRendezvous::drain_lease(std::uint64_t lease, std::vector<CmDatagram>& out) {
    const auto found = held_.find(static_cast<std::uint32_t>(lease));
    if (found == held_.end()) return;
    const Neighbours neighbours = neighbours_();
    for (int i = 0; i < kQueueMax; ++i) {
        const Fd connection(::accept4(found->second.fd, nullptr, nullptr, SOCK_CLOEXEC));
        if (!connection.valid()) return;
        const std::optional<ucred> peer = process_behind(connection.get());
        const bool known = peer && (neighbours.speaks_for(user_, *peer) ||
                                    neighbours.speaks_for(neighbours.owner, *peer));
        Letter letter;
        // A stranger with a token is a process of the port's owner that changed its user.
        if (receive_letter(connection.get(), known, letter) &&
            (known || have_one_in_common(letter.tokens, neighbours.tokens)))
            out.push_back(letter.message);
    }
}

void UnixRendezvous::abandon() {
    for (const auto& [id, held] : held_) ::close(held.fd);
    for (const int fd : {epoll_, doorbell_})
        if (fd >= 0) ::close(fd);
}

}  // namespace feroce::port
