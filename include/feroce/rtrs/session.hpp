// The client's end of sessions: reads and writes that survive the loss of paths.
//
//     rtrs::Client client(loop);
//     const std::vector<rtrs::PathAddress> paths{{"10.0.0.1"}, {"10.0.1.1"}};
//     rtrs::Session disk = (co_await client.open("disk", paths)).value();
//     co_await disk.write(message, data);    // Message and data arrive together, once.
//     auto read = co_await disk.read(message, buffer);   // The server fills the buffer,
//     use(buffer.first(read.value()));                   // and says how much of it.
//
// A request is done once: with the server's answer, or with an error when no path came back in
// time. An error of a server of ours has the text that its handler gave it. Everything belongs to
// its loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "feroce/bytes.hpp"
#include "feroce/call.hpp"
#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/rtrs/options.hpp"
#include "feroce/rtrs/request.hpp"
#include "feroce/rtrs/statistics.hpp"
#include "feroce/suspension.hpp"
#include "feroce/task.hpp"

namespace feroce::rtrs {

class SessionCore;
class SessionDirectory;

// A request that is awaited: co_await session.read(...), or session.read(...).wait() to block.
// Lives in the awaiting expression, allocates nothing. A deadline or stop ends it wherever it is,
// and then nothing touches the caller's memory any more. Only where that memory is the session's
// (SessionBuffer) and still in use, by a read in flight or a write that has not arrived, its path
// is closed for that and connected again; else the path stays and only the permit is away until
// the server has answered.
class [[nodiscard]] SessionTransfer : public rdma::Limited<SessionTransfer> {
public:
    // `data` is what Request::set_data takes.
    template <class Data>
    SessionTransfer(SessionCore& session, ConstSegment message, Data data)
        : SessionTransfer(session) {
        request_.message = message;
        request_.set_data(data);
    }
    // One that is destroyed before it is done is given up as by a deadline.
    ~SessionTransfer();
    SessionTransfer(const SessionTransfer&) = delete;
    SessionTransfer& operator=(const SessionTransfer&) = delete;

    // On the service connection, apart from the traffic of the others.
    SessionTransfer& service() {
        request_.service = true;
        return *this;
    }

    // For Awaiter: false if it is done already.
    bool start(std::coroutine_handle<> handle, const rdma::Limits* outer);
    Transferred result() const;

private:
    explicit SessionTransfer(SessionCore& session);
    struct Pending : Request {
        SessionTransfer* transfer = nullptr;
    };

    SessionCore& session_;
    Pending request_;
    bool starting_ = false;
    int code_ = 0;  // Why it was not even submitted.
};

// Memory that the session's paths may use directly. Other memory works too, through a copy.
class SessionBuffer {
public:
    SessionBuffer(SessionBuffer&& other) noexcept;
    SessionBuffer& operator=(SessionBuffer&& other) noexcept;
    ~SessionBuffer();  // No request uses it any more.

    std::span<std::byte> bytes() const { return bytes_; }

private:
    friend class Session;
    friend class SessionPort;
    SessionBuffer(std::shared_ptr<SessionCore> session, std::span<std::byte> bytes,
                  std::uint64_t area, bool elsewhere);

    std::shared_ptr<SessionCore> session_;
    std::span<std::byte> bytes_;
    std::uint64_t area_ = 0;
    bool elsewhere_ = false;  // In another thread than the session.
};

// A handle; copies share the session, which ends with the last of them. Requests in flight then end
// with ECANCELED. Not to be dropped from within on_link. The server is told, but by a message that
// nobody waits for; if it is lost, the server keeps the session for its session_linger. close()
// first, and it is not.
class Session {
public:
    const std::string& name() const;
    bool connected() const;           // At least one path is up.
    std::size_t max_io_size() const;  // Of one request's data.
    std::uint16_t queue_depth() const;
    bool extended() const;  // The server is one of ours: requests are not repeated by failover.
    rdma::Loop& loop() const;

    // What message and segments refer to must stay until the transfer is done.
    SessionTransfer read(ConstSegment message, Segment into) const;
    SessionTransfer read(ConstSegment message, std::span<const Segment> into) const;
    SessionTransfer write(ConstSegment message, ConstSegment from) const;
    SessionTransfer write(ConstSegment message, std::span<const ConstSegment> from) const;
    // The same with texts and plain values in place of bytes (feroce/bytes.hpp).
    template <class Message, class Into>
    requires rdma::NeedWritableBytes<Message, Into> SessionTransfer read(const Message& message,
                                                                         Into&& into)
    const { return read(rdma::bytes_of(message), rdma::writable_bytes_of(into)); }
    template <class Message, class From>
    requires rdma::NeedBytes<Message, From> SessionTransfer write(const Message& message,
                                                                  const From& from)
    const { return write(rdma::bytes_of(message), rdma::bytes_of(from)); }
    rdma::Result<SessionBuffer> allocate(std::size_t bytes) const;

    // Paths have the numbers of their adding.
    rdma::Result<std::size_t> add_path(const PathAddress& address) const;
    rdma::Result<> remove_path(std::size_t path) const;
    rdma::Result<> disconnect_path(std::size_t path) const;  // Until reconnect_path().
    rdma::Result<> reconnect_path(std::size_t path) const;   // Now, whatever the back-off says.
    // The last call, of the last handle, when every request is done: returns when the server knows
    // that the client does not come back. ETIMEDOUT: no answer within a second. ENOTCONN: no path.
    rdma::Call<> close() const;
    void set_policy(PathPolicy policy) const;
    SessionStatistics statistics() const;

private:
    friend class Client;
    friend class SessionPort;
    explicit Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
    std::shared_ptr<SessionCore> core_;
};

// Where sessions are found by their names. Outlives none of them: they go on without it. `feroce
// session` shows them to the user that runs the program.
class Client {
public:
    explicit Client(rdma::Loop& loop);

    // Opens a session, or gives the one of this name that is open already (then the options count
    // for nothing and paths that it lacks are added). Ready when the first path is up; fails if
    // every path failed.
    rdma::Call<Session> open(std::string name, std::vector<PathAddress> paths,
                             SessionOptions options = {});

private:
    static rdma::Task<rdma::Result<Session>> open_session(
        std::shared_ptr<SessionDirectory> directory, std::string name,
        std::vector<PathAddress> paths, SessionOptions options);

    std::shared_ptr<SessionDirectory> directory_;
};

}  // namespace feroce::rtrs
