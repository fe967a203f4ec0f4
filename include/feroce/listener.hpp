// Listener: takes requests for connections at an address. Each is accepted or refused; one
// that is dropped is refused.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "feroce/call.hpp"
#include "feroce/connection.hpp"
#include "feroce/signal.hpp"

namespace feroce::rdma {

class ConnectionRequest {
public:
    ConnectionRequest(ConnectionRequest&&) noexcept = default;
    ConnectionRequest& operator=(ConnectionRequest&&) noexcept = default;
    ~ConnectionRequest() = default;

    const PrivateData& peer_data() const { return data_; }
    Address peer() const;
    Address local() const;
    rdma_cm_id* raw() const { return id_.get(); }

    // Makes the queue pair, on a loop of any thread (then called on it): receives can be posted,
    // then Connection::accept().
    Result<Connection> prepare(Loop& loop, const ConnectionOptions& options = {}) &&;
    // Both at once.
    Call<Connection> accept(Loop& loop, ConnectionOptions options = {}, PrivateData data = {}) && {
        return {loop, accepting(loop, std::move(options), data)};
    }
    // The peer's connect fails with ECONNREFUSED and gets the data.
    void reject(const PrivateData& data = {}) &&;

private:
    friend class Listener;
    struct Refuse {
        void operator()(rdma_cm_id* id) const;
    };
    Task<Result<Connection>> accepting(Loop& loop, ConnectionOptions options, PrivateData data);
    ConnectionRequest(rdma_cm_id* id, const PrivateData& data) : id_(id), data_(data) {}

    std::unique_ptr<rdma_cm_id, Refuse> id_;
    PrivateData data_;
};

class Listener {
public:
    // Port 0: any; address() tells. "0.0.0.0:7471" listens on all devices. Of the requests that
    // next() was not asked for yet, those beyond `backlog` are refused.
    static Result<Listener> listen(Loop& loop, const Address& at, int backlog = 128);
    Listener(Listener&&) noexcept;
    Listener& operator=(Listener&&) noexcept;
    ~Listener();

    Call<ConnectionRequest> next() { return {loop(), awaiting()}; }  // Waits for a request.
    Address address() const;
    rdma_cm_id* raw() const;

private:
    class Core;
    explicit Listener(std::unique_ptr<Core> core);
    Loop& loop() const;
    Task<Result<ConnectionRequest>> awaiting();

    std::unique_ptr<Core> core_;
};

}  // namespace feroce::rdma
