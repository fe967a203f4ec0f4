// Server: NBD clients at a unix socket, all on one disk, in its loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "block/nbd/connection.hpp"
#include "feroce/signal.hpp"

namespace feroce::block::nbd {

class Server final : public rdma::Source, private Connection::Owner {
public:
    using Open = std::function<rdma::Task<rdma::Result<Disk>>()>;

    // `open` opens the same disk again, for the first client after a time without any, if something
    // of it was lost.
    static rdma::Result<std::unique_ptr<Server>> start(rdma::Loop& loop, Disk disk, Open open,
                                                       const std::string& path);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    void stop();  // No more clients and requests; what was asked for is answered.
    bool over() const { return connections_.empty(); }  // After stop().
    const Disk& disk() override { return disk_; }
    std::size_t clients() const { return connections_.size(); }

    bool poll() override;
    void arm() override {}
    int fd() const override { return events_; }
    void take_events() override {}

private:
    // Those beyond wait to be accepted.
    static constexpr std::size_t kClientsMax = 64;

    struct Client {
        explicit Client(std::unique_ptr<Connection> with) : connection(std::move(with)) {}
        std::unique_ptr<Connection> connection;
        bool uses_disk = false;
    };

    Server(rdma::Loop& loop, Disk disk, Open open);
    rdma::Result<> listen(const std::string& path);
    bool watch(int fd, std::uint32_t events, Connection* connection) const;
    void look();
    bool accept_waiting();
    bool add(int socket);
    void reap();
    Buffers& buffers() override { return buffers_; }
    rdma::TaskGroup& tasks() override { return tasks_; }
    void on_asked(Connection& connection) override;
    rdma::Task<void> admit(Connection& connection);
    rdma::Task<rdma::Result<>> prepare(Connection& connection);

    rdma::Loop& loop_;
    Disk disk_;
    Open open_;
    int events_ = -1;    // An epoll set of all sockets.
    int listener_ = -1;  // -1: no client may come any more.
    bool somebody_waits_ = true;
    bool polling_ = false;
    bool attached_ = false;
    Buffers buffers_;
    std::vector<Client> connections_;
    bool admitting_ = false;  // A client, one at a time.
    rdma::Signal admitted_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::block::nbd
