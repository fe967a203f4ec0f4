// UdLink: an unreliable queue pair for the datagrams of one local address, and the memory of its
// messages. A datagram that arrived stays in its place until the socket gives the place back.
//
// Not locked: its DatagramSocket does.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rsocket/name.hpp"
#include "rsocket/options.hpp"
#include "rsocket/stream.hpp"

namespace feroce::rsockets {

// The most that a message carries, with its header: rdma-core's receives have room for no more.
constexpr std::size_t kMostDatagram = 2048;

using AddressHandle = std::unique_ptr<ibv_ah, int (*)(ibv_ah*)>;

class UdLink {
public:
    struct Arrival {
        ByteView bytes;
        std::uint32_t place = 0;
        std::uint32_t queue_pair = 0;  // The sender's.
    };

    // Refuses an address that no RDMA device has.
    static Result<std::unique_ptr<UdLink>> create(const Name& local, const Options& options);
    ~UdLink();
    UdLink(const UdLink&) = delete;
    UdLink& operator=(const UdLink&) = delete;

    const Name& local() const { return local_; }
    std::uint32_t queue_pair() const { return id_->qp->qp_num; }
    int descriptor() const { return channel_->fd; }

    // Its queue pair has failed: it sends and receives nothing more.
    bool is_broken() const { return broken_; }
    Result<AddressHandle> reach(const Name& peer);
    bool can_carry(std::size_t bytes) const { return !broken_ && bytes <= most_; }
    bool has_room() const { return broken_ || !free_.empty(); }
    bool is_quiet() const { return broken_ || free_.size() == sends_; }
    // Only with room.
    Result<void> send(ibv_ah& handle, std::uint32_t queue_pair, ByteView header, Places from);

    // Takes completions; how many of them are arrivals, the first of `out`. `more`: there may be
    // others.
    std::size_t take(std::span<Arrival> out, bool& more);
    void give_back(std::uint32_t place);

    void arm();
    void take_notice();

private:
    explicit UdLink(const Name& local) : local_(local) {}
    Result<void> open_device();
    Result<void> find_gid();
    Result<void> make_queues();
    Result<void> make_memory();
    std::byte* receive_place(std::uint32_t place) const;
    std::byte* send_place(std::uint32_t place) const;

    Name local_;
    rdma_cm_id* id_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ByteSpan memory_;
    ibv_mr* region_ = nullptr;
    std::uint8_t gid_index_ = 0;
    std::size_t most_ = 0;
    std::uint32_t sends_ = 0;
    std::uint32_t receives_ = 0;
    std::vector<std::uint32_t> free_;  // Places for sends.
    bool broken_ = false;              // The queue pair has failed and sends nothing more.
    unsigned notices_ = 0;             // Of the completion queue; acknowledged together.
};

}  // namespace feroce::rsockets
