// Connection: a reliable connection to a peer, made by rdma_cm. What it can do is in transfer.hpp
// as awaitables, and here as raw posts for callers with operations of their own.
//
// A connection closes for good: when an end disconnects, when an operation fails, and when one is
// given up (timeout or stop), because the device still holds its memory until then. Everything that
// is posted completes, if need be as flushed, at the latest when the connection ends.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "feroce/address.hpp"
#include "feroce/call.hpp"
#include "feroce/cm_event.hpp"
#include "feroce/completion_queue.hpp"
#include "feroce/loop.hpp"
#include "feroce/memory.hpp"
#include "feroce/signal.hpp"
#include "feroce/work.hpp"

namespace feroce::rdma {

class SharedReceives;

struct ConnectionOptions {
    std::optional<Address> from = {};        // A local address, where there is a choice.
    ibv_pd* domain = nullptr;                // Null: the device's common one.
    CompletionQueue* completions = nullptr;  // Of the same loop. Null: one of its own,
    bool common_completions = false;         // or the loop's for the device, if it has room.
    std::uint32_t send_depth = 128;
    std::uint32_t recv_depth = 128;
    SharedReceives* shared_receives = nullptr;  // Of the same domain. Null: receives of its own.
    std::uint32_t sge = 4;                      // Regions of one work request.
    std::uint32_t inline_bytes = 64;
    std::uint8_t reads = 255;  // READs and atomics in flight; 255: what goes.
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry_count = 7;  // 7: without end.
    // How long the device waits for an acknowledgement before it repeats what it sent, rounded up
    // to 4.096 us times a power of two. None: what the connection manager chooses.
    std::optional<Duration> ack_timeout = {};
    Duration timeout = std::chrono::seconds(5);  // Of resolving, and of connecting.
};

class ConnectionCore;
class Receive;
class Transfer;
class AtomicTransfer;
class Batch;

class Connection {
public:
    // Finds the way to a peer and makes the queue pair: receives can be posted, then connect().
    static Call<Connection> resolve(Loop& loop, Address to, ConnectionOptions options = {}) {
        return {loop, resolving(loop, std::move(to), std::move(options))};
    }
    Call<> connect(PrivateData data = {}) { return {loop(), connecting(data)}; }
    // Both at once.
    static Call<Connection> connect(Loop& loop, Address to, ConnectionOptions options = {},
                                    PrivateData data = {}) {
        return {loop, connecting(loop, std::move(to), std::move(options), data)};
    }
    // Of a connection that ConnectionRequest::prepare made.
    Call<> accept(PrivateData data = {}) { return {loop(), accepting(data)}; }

    Connection(Connection&&) noexcept;
    Connection& operator=(Connection&&) noexcept;
    ~Connection();  // Disconnects; whatever is posted is flushed and told of.

    bool is_open() const;
    // Why it is not; what failed first.
    std::optional<Error> cause() const;
    // Until it is closed: by the peer, by a failure, by close().
    Call<> closed() { return {loop(), closing()}; }
    // Tells the peer and flushes what is posted. Nothing if it is closed already.
    void close();
    // Closes it and completes all that was posted, in its order: what arrived before the end is
    // told of now, and not after whatever the caller does next.
    void drain();

    // What the peer gave along when it asked or accepted.
    const PrivateData& peer_data() const;
    Address peer() const;
    Address local() const;
    Loop& loop() const;
    ibv_pd* domain() const;
    ibv_context* device() const { return raw()->verbs; }
    rdma_cm_id* raw() const;
    ibv_qp* queue_pair() const;

    // Registered memory for this connection.
    Result<Buffer> allocate(std::size_t bytes, Access access = Access::Local) const;

    // Hands the list to the device with one doorbell. If one is refused, those before it are under
    // way: `posted` says how many.
    Result<> post(std::span<Work> list, std::size_t* posted = nullptr);
    Result<> post(Work work) { return post(std::span(&work, 1)); }
    Result<> post_receive(const Regions& into, Operation& operation);
    // Says what a completion of a raw post means, in words. Closes the connection if it failed.
    Result<> judge(const ibv_wc& completion);

    // Awaitables: transfer.hpp.
    Transfer send(const Regions& from);
    Transfer send_imm(const Regions& from, std::uint32_t immediate);
    Transfer write(const RemoteRegion& to, const Regions& from);
    Transfer write_imm(const RemoteRegion& to, const Regions& from, std::uint32_t immediate);
    Transfer read(const Regions& to, const RemoteRegion& from);
    AtomicTransfer compare_swap(const RemoteRegion& word, std::uint64_t expected,
                                std::uint64_t desired);
    AtomicTransfer fetch_add(const RemoteRegion& word, std::uint64_t add);
    Batch batch(std::span<Work> list);
    Receive receive(const Regions& into);

    ConnectionCore& core() const { return *core_; }

private:
    friend class ConnectionRequest;
    explicit Connection(std::unique_ptr<ConnectionCore> core);
    static Task<Result<Connection>> resolving(Loop& loop, Address to, ConnectionOptions options);
    static Task<Result<Connection>> connecting(Loop& loop, Address to, ConnectionOptions options,
                                               PrivateData data);
    Task<Result<>> connecting(PrivateData data);
    Task<Result<>> accepting(PrivateData data);
    Task<Result<>> closing();

    std::unique_ptr<ConnectionCore> core_;
};

}  // namespace feroce::rdma
