// One side of many rdma_cm connections: an event channel, and a queue pair a connection on a shared
// completion queue, as servers have it. Every event moves its connection one step on.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdint>

[[noreturn]] void die(const char* what);

inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
}

inline sockaddr* generic(sockaddr_in& address) {
    return reinterpret_cast<sockaddr*>(&address);
}

class Endpoint {
public:
    Endpoint();
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    int fd() const { return channel_->fd; }
    rdma_cm_id* listen(std::uint16_t& port);
    // Sets up and tears down `count` connections, at most `at_once` under way.
    void connect_many(std::uint16_t port, int count, int at_once);
    // One event of the passive side.
    void serve_event();
    // Waits until the last connection is out of timewait; those before it are then out as well.
    void settle();

private:
    void start(std::uint16_t port);
    void client_event();
    // Takes the next event; its type and id. A failure of any connection ends the program.
    rdma_cm_event_type take(rdma_cm_id*& id);
    void make_queue_pair(rdma_cm_id* id);
    void drop(rdma_cm_id* id);
    // Keeps the id that disconnected last, for settle(), and drops the one kept before.
    void retire(rdma_cm_id* id);

    rdma_event_channel* channel_;
    ibv_pd* domain_ = nullptr;
    ibv_cq* completions_ = nullptr;
    rdma_cm_id* last_ = nullptr;
    bool is_last_over_ = true;
    int done_ = 0;
};
