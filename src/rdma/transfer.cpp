#include "feroce/transfer.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "base/assert.hpp"
#include "rdma/connection_core.hpp"

namespace feroce::rdma {
namespace {

Error not_started(int code) {
    if (code == ETIMEDOUT) return {code, "the time for the operation was over before it began"};
    return {code, "the program asked to stop before the operation began"};
}

Error given_up(int code) {
    if (code == ETIMEDOUT)
        return {code,
                "the operation was not done in time; the connection was closed, since what "
                "is on its way cannot be taken back otherwise"};
    return {code,
            "the program asked to stop while the operation was on its way; the connection "
            "was closed, since it cannot be taken back otherwise"};
}

}  // namespace

TransferBase::TransferBase(ConnectionCore& core, void (*on_completion)(Operation&, const ibv_wc&))
    : Suspension(core.loop(), [](Suspension& waiting,
                                 int code) { static_cast<TransferBase&>(waiting).give_up(code); }),
      core_(core) {
    complete = on_completion;
}

TransferBase::~TransferBase() {
    ASSERT(state_ != State::Posted);
}

void TransferBase::abandon() {
    if (state_ != State::Posted) return;
    give_up(ECANCELED);
    core_.flush(*this);
}

bool TransferBase::start(std::coroutine_handle<> handle, const Limits* outer) {
    if (core_.cause()) {
        error_ = core_.closed_error();
        return false;
    }
    if (const int code = begin(handle, outer); code != 0) {
        error_ = not_started(code);
        return false;
    }
    return post_or_queue();
}

bool TransferBase::post_or_queue() {
    if (!core_.has_room(weight(), state_ == State::Queued)) {
        if (!core_.queue_up(*this))
            return refuse(Error(E2BIG,
                                "the batch is longer than the send queue is deep; split it, "
                                "or connect with a larger send_depth"));
        state_ = State::Queued;
        return true;
    }
    if (Result<> posted = post(); !posted) return refuse(posted.error());
    state_ = State::Posted;
    core_.on_posted(weight());
    return true;
}

// A new transfer goes on at once, one that waited in the backlog by the loop.
bool TransferBase::refuse(const Error& error) {
    if (state_ == State::Queued) {
        fail(error);
        return true;
    }
    error_ = error;
    state_ = State::Done;
    settle();
    return false;
}

void TransferBase::fail(Error error) {
    error_ = std::move(error);
    state_ = State::Done;
    finish();
}

void TransferBase::give_up(int code) {
    if (state_ == State::Queued) return fail(not_started(code));
    if (state_ != State::Posted) return;
    given_up_ = code;
    core_.close(given_up(code));  // Flushes it, which ends it.
}

void TransferBase::note(const ibv_wc& completion) {
    if (completion.status == IBV_WC_SUCCESS || error_) return;
    if (given_up_ != 0)
        error_ = given_up(given_up_);
    else
        error_ = core_.judge(completion).error();
}

void TransferBase::end(const ibv_wc& completion) {
    note(completion);
    completion_ = completion;
    state_ = State::Done;
    finish();
    core_.on_done(weight());
}

Result<> TransferBase::outcome() {
    if (error_) return *std::move(error_);
    return {};
}

Transfer::Transfer(ConnectionCore& core, const Work& work)
    : Limited(core, [](Operation& self,
                       const ibv_wc& completion) { static_cast<Transfer&>(self).end(completion); }),
      work_(work) {}

Result<> Transfer::post() {
    work_.signal(*this);
    return core().post(std::span(&work_, 1), nullptr);
}

AtomicTransfer::AtomicTransfer(ConnectionCore& core, Kind kind, const RemoteRegion& word,
                               Operands operands)
    : Limited(core,
              [](Operation& self, const ibv_wc& completion) {
                  static_cast<AtomicTransfer&>(self).take_old(completion);
              }),
      kind_(kind),
      word_(word),
      operands_(operands) {}

Result<> AtomicTransfer::post() {
    Result<std::uint32_t> slot = core().take_word();
    if (!slot) return slot.error();
    const LocalRegion old = core().word(*slot);
    Work work = kind_ == Kind::CompareSwap
                    ? Work::compare_swap(old, word_, operands_.compare_or_add, operands_.swap)
                    : Work::fetch_add(old, word_, operands_.compare_or_add);
    work.signal(*this);
    Result<> posted = core().post(std::span(&work, 1), nullptr);
    if (!posted) core().give_word(*slot);
    slot_ = *slot;
    return posted;
}

void AtomicTransfer::take_old(const ibv_wc& completion) {
    std::memcpy(&old_, core().word(slot_).data(), sizeof old_);
    core().give_word(slot_);
    end(completion);
}

Result<std::uint64_t> AtomicTransfer::result() {
    Result<> done = outcome();
    if (!done) return done.error();
    return old_;
}

Batch::Batch(ConnectionCore& core, std::span<Work> list)
    : Limited(core, [](Operation& self,
                       const ibv_wc& completion) { static_cast<Batch&>(self).end(completion); }),
      list_(list) {
    step_.batch = this;
    step_.complete = [](Operation& self, const ibv_wc& completion) {
        static_cast<Step&>(self).batch->note(completion);
    };
}

Result<> Batch::post() {
    if (list_.empty()) return Error(EINVAL, "a batch needs at least one work request");
    for (Work& work : list_.first(list_.size() - 1)) work.watch(step_);
    list_.back().signal(*this);
    std::size_t posted = 0;
    Result<> done = core().post(list_, &posted);
    if (done || posted == 0) return done;
    // A part is in flight, because raw posts took the room. Its end must be seen.
    core().close(done.error());
    core().drain();
    return done;
}

Receive::Receive(ConnectionCore& core, const Regions& into)
    : Limited(core, [](Operation& self,
                       const ibv_wc& completion) { static_cast<Receive&>(self).end(completion); }),
      into_(into) {}

Result<> Receive::post() {
    return core().post_receive(into_, *this);
}

Result<Received> Receive::result() {
    Result<> done = outcome();
    if (!done) return done.error();
    Received out;
    out.size = completion().byte_len;
    out.is_write = completion().opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    if ((completion().wc_flags & IBV_WC_WITH_IMM) != 0)
        out.immediate = ntohl(completion().imm_data);
    return out;
}

}  // namespace feroce::rdma
