// What one awaits on a connection:
//     Result<> done = co_await connection.read(to, from).within(50ms);
//     Result<> done = connection.read(to, from).wait();      // Blocks, driving the loop.
// A transfer lies in the frame of the coroutine that awaits it and allocates nothing. It resumes
// when the device has let go of its memory. That makes limits strict: a transfer that is given up
// closes the connection, for a request on its way cannot be taken back otherwise; the Result says
// which. While the send queue is full, transfers wait their turn.
#pragma once

#include <infiniband/verbs.h>

#include <coroutine>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include "feroce/connection.hpp"
#include "feroce/operation.hpp"
#include "feroce/suspension.hpp"
#include "feroce/work.hpp"

namespace feroce::rdma {

// What they have in common.
class TransferBase : public Operation, public Suspension {
public:
    // For Awaiter: false if it is done already.
    bool start(std::coroutine_handle<> handle, const Limits* outer);

protected:
    TransferBase(ConnectionCore& core, void (*on_completion)(Operation&, const ibv_wc&));
    ~TransferBase();

    // For destructors, while what takes the completion exists. In flight: closes the connection and
    // waits until the memory is free.
    void abandon();

    // A completion of the last work request.
    void end(const ibv_wc& completion);
    void note(const ibv_wc& completion);  // Keeps what failed first.
    ConnectionCore& core() { return core_; }
    const ibv_wc& completion() const { return completion_; }
    Result<> outcome();

private:
    friend class ConnectionCore;
    enum class State : std::uint8_t { New, Queued, Posted, Done };

    virtual Result<> post() = 0;
    virtual std::uint32_t weight() const { return 1; }  // Work requests in the send queue.
    bool post_or_queue();
    bool refuse(const Error& error);
    void give_up(int code);
    void fail(Error error);

    ConnectionCore& core_;
    State state_ = State::New;
    int given_up_ = 0;  // ETIMEDOUT or ECANCELED.
    ibv_wc completion_{};
    std::optional<Error> error_;
};

class [[nodiscard]] Transfer final : public Limited<Transfer, TransferBase> {
public:
    Transfer(ConnectionCore& core, const Work& work);
    ~Transfer() { abandon(); }
    Result<> result() { return outcome(); }

private:
    Result<> post() override;
    Work work_;
};

// The result is what the word held before.
class [[nodiscard]] AtomicTransfer final : public Limited<AtomicTransfer, TransferBase> {
public:
    enum class Kind : std::uint8_t { CompareSwap, FetchAdd };
    struct Operands {
        std::uint64_t compare_or_add = 0;
        std::uint64_t swap = 0;
    };

    AtomicTransfer(ConnectionCore& core, Kind kind, const RemoteRegion& word, Operands operands);
    ~AtomicTransfer() { abandon(); }
    Result<std::uint64_t> result();

private:
    Result<> post() override;
    void take_old(const ibv_wc& completion);

    Kind kind_;
    RemoteRegion word_;
    Operands operands_;
    std::uint32_t slot_ = 0;  // Where the device puts the old value, while posted.
    std::uint64_t old_ = 0;
};

// A list with one doorbell, done when its last is. An error is that of the first that failed; those
// after it were not executed.
class [[nodiscard]] Batch final : public Limited<Batch, TransferBase> {
public:
    Batch(ConnectionCore& core, std::span<Work> list);
    ~Batch() { abandon(); }
    Result<> result() { return outcome(); }

private:
    struct Step : Operation {
        Batch* batch = nullptr;
    };
    Result<> post() override;
    std::uint32_t weight() const override { return static_cast<std::uint32_t>(list_.size()); }

    std::span<Work> list_;
    Step step_;  // Of all but the last.
};

struct Received {
    std::uint32_t size = 0;
    std::optional<std::uint32_t> immediate;
    bool is_write = false;  // An RDMA WRITE with immediate: the data is where the peer put it.
};

// One message. Post receives before the peer sends; they are filled in order.
class [[nodiscard]] Receive final : public Limited<Receive, TransferBase> {
public:
    Receive(ConnectionCore& core, const Regions& into);
    ~Receive() { abandon(); }
    Result<Received> result();

private:
    Result<> post() override;
    std::uint32_t weight() const override { return 0; }
    Regions into_;
};

}  // namespace feroce::rdma
