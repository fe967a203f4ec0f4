// See server.hpp.
#include "block/nbd/server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/rollback.hpp"
#include "block/renew.hpp"

namespace feroce::block::nbd {
namespace {

constexpr int kBacklog = 64;
constexpr int kEventsPerLook = 32;

}  // namespace

rdma::Result<std::unique_ptr<Server>> Server::start(rdma::Loop& loop, Disk disk, Open open,
                                                    const std::string& path) {
    std::unique_ptr<Server> out(new Server(loop, std::move(disk), std::move(open)));
    if (auto listening = out->listen(path); !listening) return listening.error();
    loop.attach(*out);
    out->attached_ = true;
    return out;
}

Server::Server(rdma::Loop& loop, Disk disk, Open open)
    : loop_(loop), disk_(std::move(disk)), open_(std::move(open)), admitted_(loop), tasks_(loop) {
    buffers_.use(disk_.session());
    connections_.reserve(kClientsMax);
}

Server::~Server() {
    if (attached_) loop_.detach(*this);
    if (listener_ >= 0) ::close(listener_);
    if (events_ >= 0) ::close(events_);
}

rdma::Result<> Server::listen(const std::string& path) {
    const auto failure = [&] { return rdma::Error{errno, path + ": " + std::strerror(errno)}; };
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return rdma::Error{ENAMETOOLONG, path + ": too long for a socket's name"};
    std::copy(path.begin(), path.end(), address.sun_path);
    events_ = ::epoll_create1(EPOLL_CLOEXEC);
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (events_ < 0 || listener_ < 0) return failure();
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_, kBacklog) != 0 || !watch(listener_, EPOLLIN, nullptr))
        return failure();
    return {};
}

bool Server::watch(int fd, std::uint32_t events, Connection* connection) const {
    epoll_event wanted{};
    wanted.events = events | EPOLLET;
    wanted.data.ptr = connection;
    return ::epoll_ctl(events_, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

void Server::stop() {
    if (listener_ >= 0) ::close(std::exchange(listener_, -1));
    for (Client& client : connections_) client.connection->end();
}

bool Server::poll() {
    if (polling_) return false;  // Called again by what a request waits for.
    polling_ = true;
    const Rollback over([this] { polling_ = false; });
    look();
    bool any = accept_waiting();
    for (Client& client : connections_) {
        try {
            any |= client.connection->work();
        } catch (const std::bad_alloc&) {
            client.connection->cut();
        }
    }
    reap();
    return any;
}

void Server::look() {
    std::array<epoll_event, kEventsPerLook> events;
    const int count = ::epoll_wait(events_, events.data(), kEventsPerLook, 0);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.ptr == nullptr)
            somebody_waits_ = true;
        else
            static_cast<Connection*>(event.data.ptr)->set_ready(event.events);
    }
}

// One that cannot be taken for want of descriptors or room is tried again with the next look.
bool Server::accept_waiting() {
    bool any = false;
    while (somebody_waits_ && listener_ >= 0 && connections_.size() < kClientsMax) {
        const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) somebody_waits_ = false;
            break;
        }
        any |= add(socket);
    }
    return any;
}

bool Server::add(int socket) {
    std::unique_ptr<Connection> connection;
    try {
        connection =
            std::make_unique<Connection>(loop_, socket, static_cast<Connection::Owner&>(*this));
    } catch (const std::bad_alloc&) {
        ::close(socket);
        return false;
    }
    // Readable and writable until a call says otherwise.
    if (!watch(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP, connection.get())) return false;
    connections_.emplace_back(std::move(connection));
    return true;
}

void Server::reap() {
    std::erase_if(connections_, [](const Client& client) { return client.connection->over(); });
}

void Server::on_asked(Connection& connection) {
    try {
        tasks_.spawn(admit(connection));
    } catch (const std::bad_alloc&) {
        connection.refused();
    }
}

// It stays while it waits for this: it is not over().
rdma::Task<void> Server::admit(Connection& connection) {
    while (admitting_) (void)co_await admitted_.wait();
    admitting_ = true;
    rdma::Result<> prepared = rdma::Error{ENOMEM, "no memory"};
    try {
        prepared = co_await prepare(connection);
    } catch (const std::bad_alloc&) {
    }
    admitting_ = false;
    admitted_.notify_all();
    if (prepared)
        connection.described(ExportInfo::of(disk_.info()));
    else
        connection.refused();
}

rdma::Task<rdma::Result<>> Server::prepare(Connection& connection) {
    const auto uses = [](const Client& client) { return client.uses_disk; };
    if (std::none_of(connections_.begin(), connections_.end(), uses)) {
        // Its memory is of a session that may end with the disk.
        const auto renewed = co_await renew(disk_, open_);
        if (!renewed) co_return renewed.error();
        if (*renewed) buffers_.use(disk_.session());
    }
    const auto note = [&](bool used) {
        for (Client& client : connections_)
            if (client.connection.get() == &connection) client.uses_disk = used;
    };
    note(true);
    const auto refreshed = co_await disk_.refresh();  // It may have grown.
    if (!refreshed) note(false);
    co_return refreshed;
}

}  // namespace feroce::block::nbd
