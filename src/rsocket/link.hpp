// Link: a Stream on a queue pair. Posts what the stream sends and tells it what completed. Says of
// itself only whether it was created; what goes wrong later is the stream's error().
//
// Not locked: its Socket does.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>

#include "rsocket/buffers.hpp"
#include "rsocket/options.hpp"
#include "rsocket/stream.hpp"

namespace feroce::rsockets {

class Link final : private Outlet {
public:
    // Makes the id's queue pair, with its receives posted.
    static Result<std::unique_ptr<Link>> create(rdma_cm_id* id, const Options& options);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    Stream& stream() { return *stream_; }
    Outlet& outlet() { return *this; }

    // Takes what completed; whether there was anything.
    bool progress();
    // Every completion from now on makes descriptor() readable, until take_notice().
    void arm();
    void take_notice();
    int descriptor() const { return channel_->fd; }

private:
    explicit Link(rdma_cm_id* id) : id_(id) {}
    Result<void> set_up(const Options& options);
    Result<void> make_queues(const Options& options);
    void post(const Send& send) override;
    void post_receives(std::uint32_t count);
    void on_completion(const ibv_wc& completion);

    rdma_cm_id* id_;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;
    std::unique_ptr<Buffers> buffers_;
    std::unique_ptr<Stream> stream_;
    std::uint32_t spent_receives_ = 0;
    unsigned notices_ = 0;  // Of the completion queue; acknowledged together.
};

}  // namespace feroce::rsockets
