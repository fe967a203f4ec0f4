// A session as another thread uses it: requests are handed to the session's loop and their
// completions come back to the loop of the caller. Nothing is locked and nothing allocated: a
// request travels in the awaiting expression.
//
//     rtrs::SessionPort port(session, worker_loop);            // In the session's thread,
//     (co_await port.read(message, buffer)).value();           // in the worker's.
//
// The session's loop must run while there are ports. Threads that want no hand-over have a session
// each: docs/sessions.md.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "feroce/rtrs/session.hpp"

namespace feroce::rtrs {

// As SessionTransfer, of another thread. One that goes away before it is done waits until the
// session has let it go.
class [[nodiscard]] PortTransfer : public rdma::Limited<PortTransfer> {
public:
    template <class Data>
    PortTransfer(rdma::Loop& home, SessionCore& session, ConstSegment message, Data data)
        : PortTransfer(home, session) {
        request_.message = message;
        request_.set_data(data);
    }
    ~PortTransfer();
    PortTransfer(const PortTransfer&) = delete;
    PortTransfer& operator=(const PortTransfer&) = delete;

    PortTransfer& service() {
        request_.service = true;
        return *this;
    }

    // For Awaiter: false if it is done already.
    bool start(std::coroutine_handle<> handle, const rdma::Limits* outer);
    Transferred result() const;

private:
    PortTransfer(rdma::Loop& home, SessionCore& session);
    struct Pending : Request {
        PortTransfer* transfer = nullptr;
    };
    // Each is posted once at most. What is written before is read after its delivery only, so the
    // mail is all the order that is needed.
    struct Note : rdma::Message {
        Note(rdma::Loop& to, PortTransfer& of, void (PortTransfer::*on_arrival)());
        PortTransfer& transfer;
        void (PortTransfer::*arrived)();
    };

    // In the session's thread.
    void submit();
    void cancel();
    // At home.
    void on_done();
    void on_cancelled();
    void give_up(int code);
    bool back() const { return done_here_ && (given_up_ == 0 || cancelled_here_); }

    SessionCore& session_;
    Pending request_;
    Note submit_;     // There,
    Note cancel_;     // there, after it;
    Note done_;       // back,
    Note cancelled_;  // back: nothing of this is there any more.
    // Home's own, but given_up_, which is written before cancel_ is posted.
    bool started_ = false;
    bool done_here_ = false;
    bool cancelled_here_ = false;
    bool ending_ = false;
    int given_up_ = 0;
    int code_ = 0;  // Why it was not even submitted.
};

// A handle; copies share it. While there is one the session stays.
class SessionPort {
public:
    // In the session's thread. `home` is where the port is used.
    SessionPort(const Session& session, rdma::Loop& home);

    const std::string& name() const { return shared_->name; }
    std::size_t max_io_size() const { return shared_->max_io_size; }
    std::uint16_t queue_depth() const { return shared_->queue_depth; }
    rdma::Loop& loop() const { return home_; }

    // As of Session, in the thread of loop().
    PortTransfer read(ConstSegment message, Segment into) const;
    PortTransfer read(ConstSegment message, std::span<const Segment> into) const;
    PortTransfer write(ConstSegment message, ConstSegment from) const;
    PortTransfer write(ConstSegment message, std::span<const ConstSegment> from) const;
    // The same with texts and plain values in place of bytes (feroce/bytes.hpp).
    template <class Message, class Into>
    requires rdma::NeedWritableBytes<Message, Into> PortTransfer read(const Message& message,
                                                                      Into&& into)
    const { return read(rdma::bytes_of(message), rdma::writable_bytes_of(into)); }
    template <class Message, class From>
    requires rdma::NeedBytes<Message, From> PortTransfer write(const Message& message,
                                                               const From& from)
    const { return write(rdma::bytes_of(message), rdma::bytes_of(from)); }
    rdma::Call<SessionBuffer> allocate(std::size_t bytes) const {
        return {home_, allocating(bytes)};
    }

private:
    rdma::Task<rdma::Result<SessionBuffer>> allocating(std::size_t bytes) const;
    // Ends in any thread, and lets the session go in its own.
    struct Shared {
        std::shared_ptr<SessionCore> core;
        std::string name;
        std::size_t max_io_size = 0;
        std::uint16_t queue_depth = 0;

        ~Shared();
    };

    rdma::Loop& home_;
    std::shared_ptr<const Shared> shared_;
};

}  // namespace feroce::rtrs
