#include "rdma/connection_core.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/assert.hpp"
#include "feroce/shared_receives.hpp"
#include "rdma/failure.hpp"
#include "rdma/words.hpp"

namespace feroce::rdma {
namespace {

// How often a drain looks. The device flushes by itself; the bound is for one that is broken.
constexpr int kDrainRounds = 100'000;

constexpr std::uint32_t kWordBytes = 8;

void move_to_error(ibv_qp* qp) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    ::ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

bool post_marker(ibv_qp* qp, Operation& marker) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = to_wr_id(&marker);
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return ::ibv_post_send(qp, &wr, &bad) == 0;
}

bool post_receive_marker(ibv_qp* qp, Operation& marker) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = to_wr_id(&marker);
    return ::ibv_post_recv(qp, &wr, &bad) == 0;
}

}  // namespace

ConnectionCore::ConnectionCore(Loop& loop, rdma_cm_id* id, const ConnectionOptions& options,
                               bool passive)
    : loop_(loop), id_(id), options_(options), passive_(passive), changed_(loop) {
    id_->context = static_cast<CmHandler*>(this);
}

ConnectionCore::~ConnectionCore() {
    if (passive_) ::rdma_reject(id_, nullptr, 0);
    close(Error(ECONNABORTED, "this program ended the connection"));
    if (id_->qp != nullptr) {
        drain();
        ::rdma_destroy_qp(id_);
    }
    if (queue_ != nullptr && !own_queue_)
        queue_->release(options_.send_depth + options_.recv_depth + 2);
    ::rdma_destroy_id(id_);
}

Result<> ConnectionCore::make_queue_pair() {
    // One more each than the program gets, for drain().
    const std::uint32_t entries = options_.send_depth + options_.recv_depth + 2;
    PolledQueue* const common =
        options_.common_completions ? loop_.common_queue(id_->verbs) : nullptr;
    if (common != nullptr && common->reserve(entries)) {
        queue_ = common;
    } else if (options_.completions == nullptr) {
        Result<CompletionQueue> made =
            CompletionQueue::create(loop_, id_->verbs, entries, loop_.options().vector);
        if (!made) return made.error();
        own_queue_ = *std::move(made);
        queue_ = &own_queue_->queue();
    } else if (&options_.completions->queue().loop() != &loop_) {
        return Error(EINVAL, "the completion queue belongs to another loop than the connection");
    } else if (options_.completions->queue().reserve(entries)) {
        queue_ = &options_.completions->queue();
    } else {
        return Error(ENOSPC,
                     "the completion queue has no room for one more connection of this "
                     "depth; make it larger");
    }
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    wanted.send_cq = wanted.recv_cq = queue_->cq();
    wanted.cap = {options_.send_depth + 1, options_.recv_depth + 1, options_.sge, options_.sge,
                  options_.inline_bytes};
    if (options_.shared_receives != nullptr) {
        wanted.srq = options_.shared_receives->raw();
        wanted.cap.max_recv_wr = 0;
    }
    if (::rdma_create_qp(id_, options_.domain, &wanted) != 0)
        return failure("no queue pair of these depths could be made");
    return {};
}

rdma_conn_param ConnectionCore::parameters(const PrivateData& data) const {
    rdma_conn_param p{};
    p.private_data = data.bytes().data();
    p.private_data_len = static_cast<std::uint8_t>(std::min<std::size_t>(data.bytes().size(), 255));
    p.responder_resources = options_.reads;
    p.initiator_depth = options_.reads;
    p.retry_count = options_.retry_count;
    p.rnr_retry_count = options_.rnr_retry_count;
    return p;
}

std::string ConnectionCore::peer_name() const {
    return Address(*::rdma_get_peer_addr(id_)).text();
}

Task<Result<>> ConnectionCore::reach(Stage wanted, const char* what) {
    const Instant deadline = loop_.after(options_.timeout);
    while (reached_ < wanted && !cause_) {
        Result<> waited = co_await changed_.wait().until(deadline);
        if (waited) continue;
        if (waited.error().code != ETIMEDOUT) co_return waited;
        co_return Error(ETIMEDOUT, "no answer from " + peer_name() + " in time while " + what +
                                       "; is it up, and UDP port 4791 open?");
    }
    // One that was open and is closed again was connected.
    if (reached_ < wanted) co_return *cause_;
    co_return Result<>{};
}

Error ConnectionCore::connect_error(const CmEvent& event) const {
    const std::string to = "no connection to " + peer_name() + ": ";
    if (event.type == RDMA_CM_EVENT_REJECTED) {
        Error error(ECONNREFUSED, to + meaning_of_rejection(event.status));
        error.reject_reason = event.status;
        error.reject_data.assign(event.data.bytes().begin(), event.data.bytes().end());
        return error;
    }
    int code = event.status == 0 ? EHOSTUNREACH : std::abs(event.status);
    if (event.type == RDMA_CM_EVENT_ADDR_ERROR || event.type == RDMA_CM_EVENT_ROUTE_ERROR)
        return {code, to + "there is no way to it from a device of this machine"};
    if (event.type == RDMA_CM_EVENT_UNREACHABLE)
        return {EHOSTUNREACH, to + "it does not answer; is it up, and UDP port 4791 open?"};
    return failure(to + ::rdma_event_str(event.type), code);
}

void ConnectionCore::on_cm_event(const CmEvent& event) {
    switch (event.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            reached_ = Stage::Addressed;
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            reached_ = Stage::Routed;
            break;
        case RDMA_CM_EVENT_ESTABLISHED:
            if (cause_) break;
            reached_ = Stage::Open;
            if (!event.data.bytes().empty()) peer_data_ = event.data;
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            close(Error(ECONNRESET, "the peer " + peer_name() + " closed the connection"));
            break;
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            close(Error(ENODEV, "the device of the connection is gone"));
            break;
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
            return;
        default:
            close(connect_error(event));
    }
    changed_.notify_all();
}

void ConnectionCore::close(Error why) {
    if (cause_) return;
    cause_ = std::move(why);
    if (reached_ == Stage::Open) ::rdma_disconnect(id_);  // Moves the queue pair to ERR, too.
    if (id_->qp != nullptr) move_to_error(id_->qp);
    while (TransferBase* waiting = backlog_.pop_front()) waiting->fail(closed_error());
    changed_.notify_all();
}

Error ConnectionCore::closed_error() const {
    ASSERT(cause_);
    Error error = *cause_;
    error.status = IBV_WC_WR_FLUSH_ERR;
    return error;
}

Result<> ConnectionCore::judge(const ibv_wc& completion) {
    if (completion.status == IBV_WC_SUCCESS) return {};
    if (completion.status == IBV_WC_WR_FLUSH_ERR && cause_) return closed_error();
    Error error(errno_of(completion.status), meaning_of(completion.status));
    const std::string chain = explain(id_->qp);
    if (!chain.empty()) error.why += " (" + chain + ")";
    error.status = completion.status;
    close(error);
    return error;
}

Result<> ConnectionCore::post(std::span<Work> list, std::size_t* posted) {
    if (posted != nullptr) *posted = 0;
    if (list.empty()) return {};
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (Result<> good = list[i].check(); !good) return good;
        list[i].prepare(i + 1 < list.size() ? &list[i + 1] : nullptr);
    }
    if (id_->qp == nullptr) return Error(ENOTCONN, "the connection has no queue pair yet");
    ibv_send_wr* bad = nullptr;
    const int code = ::ibv_post_send(id_->qp, &list[0].raw(), &bad);
    std::size_t accepted = 0;
    while (code != 0 && &list[accepted].raw() != bad) ++accepted;
    if (posted != nullptr) *posted = code == 0 ? list.size() : accepted;
    if (code == 0) return {};
    if (code == ENOMEM)
        return Error(ENOMEM,
                     "the send queue is full; wait for completions, or connect with a "
                     "larger send_depth");
    return failure("work request " + std::to_string(accepted) + " of the list was refused", code);
}

Result<> ConnectionCore::post_receive(const Regions& into, Operation& operation) {
    if (id_->qp == nullptr) return Error(ENOTCONN, "the connection has no queue pair yet");
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = to_wr_id(&operation);
    wr.sg_list = into.sges();
    wr.num_sge = into.count();
    if (options_.shared_receives != nullptr)
        return Error(EINVAL, "the connection's receives are shared; post them there");
    const int code = ::ibv_post_recv(id_->qp, &wr, &bad);
    if (code == 0) return {};
    if (code == ENOMEM)
        return Error(ENOMEM, "more receives are posted than the connection's recv_depth");
    return failure("a receive was refused", code);
}

bool ConnectionCore::has_room(std::uint32_t work_requests, bool waited) const {
    if (work_requests == 0) return true;  // A receive.
    return in_flight_ + work_requests <= options_.send_depth && (waited || backlog_.empty());
}

bool ConnectionCore::queue_up(TransferBase& transfer) {
    if (in_flight_ == 0) return false;
    backlog_.push_back(transfer);
    return true;
}

void ConnectionCore::on_done(std::uint32_t work_requests) {
    in_flight_ -= work_requests;
    while (!backlog_.empty() && !cause_ && has_room(backlog_.front().weight(), true)) {
        TransferBase& next = *backlog_.pop_front();
        next.post_or_queue();
    }
}

// A simulated machine that is switched off throws through what waits; a destructor cannot care.
void ConnectionCore::look_or_relax() noexcept {
    try {
        if (!queue_->poll()) loop_.runtime().relax();
    } catch (...) {
    }
}

void ConnectionCore::flush(const TransferBase& transfer) {
    for (int round = 0; round < kDrainRounds && !transfer.done(); ++round) look_or_relax();
}

void ConnectionCore::drain() {
    Marker& sends = last_send_;
    Marker& receives = last_receive_;
    sends.posted = sends.done = false;
    receives.posted = receives.done = false;
    // Shared receives are not flushed: those that nobody took stay for the others.
    receives.posted = receives.done = options_.shared_receives != nullptr;
    for (int round = 0; round < kDrainRounds && !(sends.done && receives.done); ++round) {
        if (!sends.posted) sends.posted = post_marker(id_->qp, sends);
        if (!receives.posted) receives.posted = post_receive_marker(id_->qp, receives);
        look_or_relax();
    }
}

Result<std::uint32_t> ConnectionCore::take_word() {
    if (!words_) {
        const std::uint32_t count = options_.send_depth;
        Result<Buffer> made = Buffer::create(id_->qp->pd, loop_.runtime().memory(),
                                             std::size_t{count} * kWordBytes, Access::Local);
        if (!made) return made.error();
        words_ = *std::move(made);
        free_words_.reserve(count);
        for (std::uint32_t i = count; i > 0; --i) free_words_.push_back(i - 1);
    }
    if (free_words_.empty()) return Error(ENOMEM, "more atomics than the send queue is deep");
    const std::uint32_t slot = free_words_.back();
    free_words_.pop_back();
    return slot;
}

}  // namespace feroce::rdma
