#include "port/mailbox.hpp"

#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/assert.hpp"
#include "port/clock.hpp"

namespace feroce::port {
namespace {

static_assert(std::is_trivially_copyable_v<Letter>);

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

Fd make_socket() {
    return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::optional<ucred> process_behind(int connection) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
    return peer;
}

}  // namespace

Result<Mailbox> Mailbox::open(std::string name) {
    Fd fd = make_socket();
    const UnixName address(name);
    if (!fd.valid() || ::bind(fd.get(), address.get(), address.length) != 0 ||
        ::listen(fd.get(), kLettersMax) != 0)
        return Error{errno, "no unix socket for the connection manager"};
    return Mailbox(std::move(fd), std::move(name));
}

std::optional<Mailbox::Arrival> Mailbox::next() const {
    Fd connection(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return std::nullopt;
    const std::optional<ucred> sender = process_behind(connection.get());
    return Arrival{std::move(connection), sender.value_or(ucred{-1, ~0u, ~0u})};
}

std::optional<Letter> Mailbox::read(const Arrival& arrival, Instant until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - monotonic_now());
    pollfd readable{arrival.connection.get(), POLLIN, 0};
    if (left.count() > 0) (void)::poll(&readable, 1, static_cast<int>(left.count()));
    Letter letter;
    const ssize_t n = ::recv(arrival.connection.get(), &letter, sizeof letter, MSG_DONTWAIT);
    return n == sizeof letter ? std::optional(letter) : std::nullopt;
}

Posted post(const std::string& mailbox, const Letter& letter,
            const std::function<bool(const ucred&)>& trusts) {
    const Fd connection = make_socket();
    const UnixName address(mailbox);
    if (!connection.valid() || ::connect(connection.get(), address.get(), address.length) != 0)
        return errno == EAGAIN || errno == EMFILE ? Posted::Full : Posted::Nobody;
    const std::optional<ucred> owner = process_behind(connection.get());
    if (!owner || !trusts(*owner)) return Posted::Nobody;
    // If it has died since, the peer repeats itself.
    (void)!::send(connection.get(), &letter, sizeof letter, MSG_NOSIGNAL | MSG_DONTWAIT);
    return Posted::Taken;
}

}  // namespace feroce::port
