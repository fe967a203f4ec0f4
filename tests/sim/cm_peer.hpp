// CmPeer: one end of an rdma_cm connection as programs in simulations use it: an event channel and
// a completion channel, neither of which blocks, a queue pair and a buffer. Gives everything back.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

#include "base/gid.hpp"
#include "base/time.hpp"

namespace feroce::sim {

// What a program keeps of an event after it has acknowledged it.
struct CmNews {
    rdma_cm_event_type type{};
    int status = 0;
    rdma_cm_id* id = nullptr;  // For a request: the new one.
};

sockaddr_storage socket_address(const Gid& gid, std::uint16_t port);

// The next event; nothing if there is none now.
std::optional<CmNews> next_event(rdma_event_channel* channel);

class CmPeer {
public:
    static constexpr std::uint32_t kBytes = 4096;

    CmPeer();                           // A new id.
    explicit CmPeer(rdma_cm_id* from);  // Of a request; takes it over.
    ~CmPeer();
    CmPeer(const CmPeer&) = delete;
    CmPeer& operator=(const CmPeer&) = delete;

    rdma_cm_id* id() const { return id_; }
    bool make_qp();  // With a receive posted into the second half of the buffer.
    // Address, route, queue pair, request. Nothing if the request was sent.
    std::optional<CmNews> connect(const Gid& to, std::uint16_t port, Duration patience);
    int accept();

    // The next event, within so long of virtual time.
    std::optional<CmNews> event(Duration patience);
    std::optional<CmNews> event_now() { return next_event(channel_); }
    std::optional<ibv_wc> completion_now();

    void send(std::uint32_t bytes);  // From the first half of the buffer.
    std::uint8_t* outgoing() { return buffer_.data(); }
    std::uint8_t* incoming() { return buffer_.data() + kBytes; }

private:
    void open_channel();

    rdma_event_channel* channel_ = nullptr;
    rdma_cm_id* id_ = nullptr;
    ibv_comp_channel* completions_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_mr* mr_ = nullptr;
    bool look_ = true;  // The completion queue may hold something.
    std::pmr::vector<std::uint8_t> buffer_;
};

}  // namespace feroce::sim
