#include "rsocket/link.hpp"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace feroce::rsockets {
namespace {

// Receives beyond the credits that the peer gets: its control messages take receives and no credit.
constexpr std::uint32_t kSpareReceives = 16;
// Spent receives are posted again so many at a time, by one call.
constexpr std::uint32_t kReceivesAtOnce = 32;
constexpr std::uint32_t receives_for(const Options& options) {
    return options.receive_queue + kSpareReceives + kReceivesAtOnce;
}
constexpr std::uint64_t kReceiveTag = ~std::uint64_t{0};

}  // namespace

Result<std::unique_ptr<Link>> Link::create(rdma_cm_id* id, const Options& options) {
    std::unique_ptr<Link> link(new Link(id));
    if (Result<void> done = link->set_up(options); !done) return done.error();
    return link;
}

Link::~Link() {
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    if (cq_ != nullptr) {
        ibv_ack_cq_events(cq_, notices_);
        ibv_destroy_cq(cq_);
    }
    if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

Result<void> Link::set_up(const Options& options) {
    if (Result<void> done = make_queues(options); !done) return done;
    Result<std::unique_ptr<Buffers>> buffers = Buffers::create(
        id_->pd, {options.send_buffer, options.receive_buffer, told_mappings(options.mappings)});
    if (!buffers) return buffers.error();
    buffers_ = std::move(*buffers);
    StreamConfig config;
    config.send_queue = options.send_queue;
    config.receive_queue = options.receive_queue;
    config.copied_limit = options.inline_bytes;
    buffers_->describe(config);
    stream_ = std::make_unique<Stream>(config);
    post_receives(receives_for(options));
    if (stream_->error() != 0) return Error{stream_->error(), "receives cannot be posted"};
    return {};
}

Result<void> Link::make_queues(const Options& options) {
    channel_ = ibv_create_comp_channel(id_->verbs);
    if (channel_ == nullptr) return Error{errno, "no completion channel"};
    if (::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return Error{errno, "channel cannot poll"};
    const std::uint32_t receives = receives_for(options);
    cq_ = ibv_create_cq(id_->verbs, static_cast<int>(options.send_queue + receives), nullptr,
                        channel_, 0);
    if (cq_ == nullptr) return Error{errno, "no completion queue"};
    ibv_qp_init_attr attributes{};
    attributes.send_cq = cq_;
    attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap.max_send_wr = options.send_queue;
    attributes.cap.max_recv_wr = receives;
    attributes.cap.max_send_sge = 2;
    attributes.cap.max_recv_sge = 1;
    // The entries that are written into the peer's memory leave inline whatever the program asked.
    attributes.cap.max_inline_data =
        std::max(options.inline_bytes, static_cast<std::uint32_t>(kMappingBytes));
    if (rdma_create_qp(id_, nullptr, &attributes) != 0) return Error{errno, "no queue pair"};
    return {};
}

void Link::post(const Send& send) {
    std::array<ibv_sge, 2> pieces{};
    ibv_send_wr wr{};
    for (const ByteView bytes : send.bytes) {
        if (bytes.empty()) continue;
        ibv_sge& piece = pieces[static_cast<std::size_t>(wr.num_sge++)];
        piece.addr = reinterpret_cast<std::uintptr_t>(bytes.data());
        piece.length = static_cast<std::uint32_t>(bytes.size());
        piece.lkey = send.copied ? 0 : buffers_->send_key();
    }
    wr.wr_id = send.tag;
    wr.sg_list = pieces.data();
    wr.opcode = send.has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr.send_flags = send.copied ? IBV_SEND_INLINE : 0;
    wr.imm_data = htonl(send.immediate);
    wr.wr.rdma.remote_addr = send.address;
    wr.wr.rdma.rkey = send.key;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(id_->qp, &wr, &bad) == 0) return;
    stream_->on_sent(send.tag);  // No completion will come.
    stream_->fail(ECONNRESET);
}

// Receives without memory: only their completions are wanted.
void Link::post_receives(std::uint32_t count) {
    std::array<ibv_recv_wr, kReceivesAtOnce> list{};
    while (count != 0) {
        const std::uint32_t length = std::min(count, kReceivesAtOnce);
        for (std::uint32_t i = 0; i < length; ++i) {
            list[i].wr_id = kReceiveTag;
            list[i].next = i + 1 < length ? &list[i + 1] : nullptr;
        }
        ibv_recv_wr* bad = nullptr;
        if (ibv_post_recv(id_->qp, list.data(), &bad) != 0) return stream_->fail(ECONNRESET);
        count -= length;
    }
}

bool Link::progress() {
    std::array<ibv_wc, 16> completions;
    bool any = false;
    int count = 0;
    do {
        count = ibv_poll_cq(cq_, completions.size(), completions.data());
        for (int i = 0; i < count; ++i) on_completion(completions[static_cast<std::size_t>(i)]);
        any = any || count > 0;
    } while (count == static_cast<int>(completions.size()));
    if (count < 0) stream_->fail(EIO);
    if (!any) return false;
    if (stream_->error() == 0 && spent_receives_ >= kReceivesAtOnce)
        post_receives(std::exchange(spent_receives_, 0));
    stream_->flush(*this);
    return true;
}

void Link::on_completion(const ibv_wc& completion) {
    const bool received = completion.wr_id == kReceiveTag;
    if (!received) stream_->on_sent(completion.wr_id);
    if (completion.status != IBV_WC_SUCCESS) {
        const bool gone =
            completion.status == IBV_WC_WR_FLUSH_ERR || completion.status == IBV_WC_RETRY_EXC_ERR;
        return stream_->fail(gone ? ECONNRESET : EIO);
    }
    if (!received) return;
    ++spent_receives_;
    stream_->open(*this);  // The first packet may come before the event that says so.
    if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0)
        stream_->on_immediate(ntohl(completion.imm_data));
}

void Link::arm() {
    if (ibv_req_notify_cq(cq_, 0) != 0) stream_->fail(EIO);
}

void Link::take_notice() {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel_, &which, &context) == 0) ++notices_;
}

}  // namespace feroce::rsockets
