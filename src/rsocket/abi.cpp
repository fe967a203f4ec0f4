// The exported calls, as rdma-core declares them. Each finds the socket, and turns an Error into -1
// and errno.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>
#include <new>
#include <vector>

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
// Of release 65, which Debian's headers are older than.
struct epoll_event;
extern "C" {
int repoll_create(int flags);
int repoll_ctl(int epoll, int operation, int descriptor, epoll_event* event);
int repoll_wait(int epoll, epoll_event* events, int room, int timeout);
}
#pragma GCC visibility pop

#include "base/annotate.hpp"
#include "base/uncancelled.hpp"
#include "rsocket/datagram_socket.hpp"
#include "rsocket/epoll.hpp"
#include "rsocket/poll.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/table.hpp"

namespace {

using namespace feroce;
using rsockets::Endpoint;

constexpr Error kNoSocket{EBADF, "no rsocket"};

int fail(const Error& error) {
    errno = error.code;
    return -1;
}

// Exceptions end here: programs in C could do nothing with them. A cancellation passes.
template <class Body>
auto call(Body&& body) -> decltype(body()) {
    const annotate::OwnCalls part;
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return fail({ENOMEM, "out of memory"});
    } catch (const std::length_error&) {  // More than any memory.
        return fail({ENOMEM, "out of memory"});
    }
}

// A call on one socket that returns 0, and that a cancellation has to wait for.
template <class Body>
int plain_call(int descriptor, Body&& body) {
    return call([&]() -> int {
        const Uncancelled part;
        const std::shared_ptr<Endpoint> socket = rsockets::find(descriptor);
        if (socket == nullptr) return fail(kNoSocket);
        const Result<void> done = body(*socket);
        return done ? 0 : fail(done.error());
    });
}

// A call on one socket that returns a number.
template <class Number, class Body>
Number counting_call(int descriptor, Body&& body) {
    return call([&]() -> Number {
        const std::shared_ptr<Endpoint> socket = rsockets::find(descriptor);
        if (socket == nullptr) return static_cast<Number>(fail(kNoSocket));
        const auto done = body(*socket);
        return static_cast<Number>(done ? static_cast<Number>(*done)
                                        : static_cast<Number>(fail(done.error())));
    });
}

ssize_t send_places(int descriptor, rsockets::Places from, int flags,
                    const rsockets::Destination& to) {
    return counting_call<ssize_t>(descriptor, [&](Endpoint& s) { return s.send(from, flags, to); });
}

ssize_t send_one(int descriptor, const void* from, size_t length, int flags,
                 const rsockets::Destination& to = {}) {
    const ByteView place(static_cast<const std::byte*>(from), length);
    return send_places(descriptor, {&place, 1}, flags, to);
}

ssize_t send_vector(int descriptor, const iovec* from, size_t count, int flags,
                    const rsockets::Destination& to = {}) {
    return call([&]() -> ssize_t {
        std::vector<ByteView> places;
        for (size_t i = 0; i < count; ++i)
            places.emplace_back(static_cast<const std::byte*>(from[i].iov_base), from[i].iov_len);
        return send_places(descriptor, places, flags, to);
    });
}

ssize_t receive_vector(int descriptor, const iovec* to, size_t count, int flags,
                       const rsockets::Sender& sender = {}) {
    return counting_call<ssize_t>(descriptor, [&](Endpoint& s) {
        return s.receive({to, count}, flags, sender);
    });
}

ssize_t receive_one(int descriptor, void* to, size_t length, int flags,
                    const rsockets::Sender& sender = {}) {
    const iovec place{to, length};
    return receive_vector(descriptor, &place, 1, flags, sender);
}

template <class Kind>
int take_in(Result<std::shared_ptr<Kind>> made) {
    if (!made) return fail(made.error());
    const int descriptor = (*made)->descriptor();
    rsockets::enter(std::move(*made));
    return descriptor;
}

}  // namespace

int rsocket(int domain, int type, int protocol) {
    if (domain != AF_INET && domain != AF_INET6) return fail({EAFNOSUPPORT, "IPv4 and IPv6 only"});
    const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int own_protocol = kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
    if (kind != SOCK_STREAM && kind != SOCK_DGRAM)
        return fail({EPROTONOSUPPORT, "streams and datagrams only"});
    if (protocol != 0 && protocol != own_protocol)
        return fail({EPROTONOSUPPORT, "TCP for streams, UDP for datagrams"});
    return call([&]() -> int {
        const Uncancelled part;
        const bool blocking = (type & SOCK_NONBLOCK) == 0;
        return kind == SOCK_STREAM ? take_in(rsockets::Socket::create(blocking))
                                   : take_in(rsockets::DatagramSocket::create(domain, blocking));
    });
}

int rbind(int descriptor, const sockaddr* address, socklen_t length) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.bind(address, length); });
}

int rlisten(int descriptor, int backlog) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.listen(backlog); });
}

int raccept(int descriptor, sockaddr* address, socklen_t* length) {
    return call([&]() -> int {
        const std::shared_ptr<Endpoint> socket = rsockets::find(descriptor);
        if (socket == nullptr) return fail(kNoSocket);
        Result<std::shared_ptr<Endpoint>> made = socket->accept();
        if (made && address != nullptr && length != nullptr)
            static_cast<void>((*made)->peer_name(address, length));
        return take_in(std::move(made));
    });
}

int rconnect(int descriptor, const sockaddr* address, socklen_t length) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.connect(address, length); });
}

int rshutdown(int descriptor, int how) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.shut_down(how); });
}

int rclose(int descriptor) {
    return call([&]() -> int {
        const Uncancelled part;
        const std::shared_ptr<Endpoint> socket = rsockets::remove(descriptor);
        if (socket == nullptr) return rsockets::close_epoll(descriptor) ? 0 : fail(kNoSocket);
        rsockets::leave_epolls(descriptor);
        socket->close();
        return 0;
    });
}

ssize_t rrecv(int descriptor, void* to, size_t length, int flags) {
    return receive_one(descriptor, to, length, flags);
}

ssize_t rrecvfrom(int descriptor, void* to, size_t length, int flags, sockaddr* address,
                  socklen_t* address_length) {
    return receive_one(descriptor, to, length, flags, {address, address_length});
}

ssize_t rrecvmsg(int descriptor, msghdr* message, int flags) {
    if (message == nullptr) return fail({EFAULT, "no message"});
    if (message->msg_control != nullptr && message->msg_controllen != 0)
        return fail({ENOTSUP, "rsockets have no control data"});
    message->msg_flags = 0;
    return receive_vector(
        descriptor, message->msg_iov, message->msg_iovlen, flags,
        {static_cast<sockaddr*>(message->msg_name), &message->msg_namelen, &message->msg_flags});
}

ssize_t rsend(int descriptor, const void* from, size_t length, int flags) {
    return send_one(descriptor, from, length, flags);
}

ssize_t rsendto(int descriptor, const void* from, size_t length, int flags, const sockaddr* address,
                socklen_t address_length) {
    return send_one(descriptor, from, length, flags, {address, address_length});
}

ssize_t rsendmsg(int descriptor, const msghdr* message, int flags) {
    if (message == nullptr) return fail({EFAULT, "no message"});
    if (message->msg_control != nullptr && message->msg_controllen != 0)
        return fail({ENOTSUP, "rsockets have no control data"});
    return send_vector(descriptor, message->msg_iov, message->msg_iovlen, flags,
                       {static_cast<const sockaddr*>(message->msg_name), message->msg_namelen});
}

ssize_t rread(int descriptor, void* to, size_t length) {
    return receive_one(descriptor, to, length, 0);
}

ssize_t rreadv(int descriptor, const iovec* to, int count) {
    if (count < 0) return fail({EINVAL, "a negative number of places"});
    return receive_vector(descriptor, to, static_cast<size_t>(count), 0);
}

ssize_t rwrite(int descriptor, const void* from, size_t length) {
    return send_one(descriptor, from, length, 0);
}

ssize_t rwritev(int descriptor, const iovec* from, int count) {
    if (count < 0) return fail({EINVAL, "a negative number of places"});
    return send_vector(descriptor, from, static_cast<size_t>(count), 0);
}

int rpoll(pollfd* entries, nfds_t count, int timeout) {
    return call([&]() -> int { return rsockets::poll_all(entries, count, timeout); });
}

int rselect(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
    return call([&]() -> int { return rsockets::select_all(count, read, write, except, timeout); });
}

int repoll_create(int flags) {
    return call([&]() -> int {
        const Uncancelled part;
        return rsockets::make_epoll(flags);
    });
}

int repoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) {
    return call([&]() -> int {
        const Uncancelled part;
        return rsockets::change_epoll(epoll, operation, descriptor, event);
    });
}

int repoll_wait(int epoll, epoll_event* events, int room, int timeout) {
    return call([&]() -> int { return rsockets::wait_epoll(epoll, events, room, timeout); });
}

int rgetpeername(int descriptor, sockaddr* address, socklen_t* length) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.peer_name(address, length); });
}

int rgetsockname(int descriptor, sockaddr* address, socklen_t* length) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.local_name(address, length); });
}

int rsetsockopt(int descriptor, int level, int name, const void* value, socklen_t length) {
    return plain_call(descriptor,
                      [&](Endpoint& s) { return s.set_option(level, name, value, length); });
}

int rgetsockopt(int descriptor, int level, int name, void* value, socklen_t* length) {
    return plain_call(descriptor,
                      [&](Endpoint& s) { return s.get_option(level, name, value, length); });
}

int rfcntl(int descriptor, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    const long argument = va_arg(arguments, long);
    va_end(arguments);
    return call([&]() -> int {
        const std::shared_ptr<Endpoint> socket = rsockets::find(descriptor);
        if (socket == nullptr) return fail(kNoSocket);
        switch (command) {
            case F_GETFL:
                return socket->is_blocking() ? O_RDWR : O_RDWR | O_NONBLOCK;
            case F_SETFL:
                socket->set_blocking((argument & O_NONBLOCK) == 0);
                return 0;
            case F_GETFD:
            case F_SETFD:
                return ::fcntl(descriptor, command, argument);
            default:
                return fail({ENOTSUP, "F_GETFL, F_SETFL, F_GETFD and F_SETFD only"});
        }
    });
}

off_t riomap(int descriptor, void* memory, size_t length, int protection, int, off_t offset) {
    return counting_call<off_t>(
        descriptor, [&](Endpoint& s) { return s.map(memory, length, protection, offset); });
}

int riounmap(int descriptor, void* memory, size_t length) {
    return plain_call(descriptor, [&](Endpoint& s) { return s.unmap(memory, length); });
}

size_t riowrite(int descriptor, const void* from, size_t length, off_t offset, int flags) {
    const ByteView bytes(static_cast<const std::byte*>(from), length);
    return counting_call<size_t>(descriptor,
                                 [&](Endpoint& s) { return s.write_mapped(bytes, offset, flags); });
}
