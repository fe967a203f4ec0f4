// ServerPath: one incarnation of a path on the server: its connections, its own keys to the
// session's chunks, its heartbeat. When it has ended its queue pairs and keys are gone, so nothing
// that still travels through it can touch a chunk: that is what a fence confirms.
//
// close() only marks it and tells the owner, which ends it when no completion is being handled.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "feroce/listener.hpp"
#include "feroce/memory.hpp"
#include "feroce/task_group.hpp"
#include "rtrs/channel.hpp"
#include "rtrs/heartbeat.hpp"
#include "rtrs/line.hpp"
#include "rtrs/server_session.hpp"

namespace feroce::rtrs {

class ServerPath final : public Channel::Owner, public AnsweringPath, private Beat::Owner {
public:
    class Owner {
    public:
        // The client names its session. The owner calls admit() or refuse(), now or later.
        virtual void on_info(ServerPath& path, const std::string& name) = 0;
        virtual void on_sign(ServerPath& path) = 0;  // The answer to probe().
        virtual void on_fence(ServerPath& path, const Fence& fence) = 0;
        virtual void on_closed(ServerPath& path, const char* why) = 0;

    protected:
        ~Owner() = default;
    };
    struct Identity {
        PathNumber number = kNoPath;
        Uuid uuid;
        std::uint16_t incarnation = 0;
        std::uint16_t connections = 0;
        std::string route;  // Both addresses, without ports.
    };

    ServerPath(rdma::Loop& loop, const Identity& identity, std::shared_ptr<ServerSession> session,
               const ServerOptions& options, Owner& owner);
    ~ServerPath();
    ServerPath(const ServerPath&) = delete;
    ServerPath& operator=(const ServerPath&) = delete;

    const Identity& identity() const { return identity_; }
    ServerSession& session() { return *session_; }
    bool closed() const { return state_ == State::Closed; }
    std::string peer() const;  // The client's address, without port.
    // Whether this is the next connection of this path; else why it is refused.
    Result<void> check(const ConnectRequest& request) const;
    // Accepts; an error is for the log, the peer has its answer then or never.
    rdma::Result<> add(std::uint16_t number, rdma::ConnectionRequest request,
                       const ConnectResponse& answer);

    std::size_t connections() const { return connections_; }  // Made so far.
    // Whether the peer has proved to be there: it has answered what was sent to its address.
    bool proved() const { return proved_; }
    void admit();
    void refuse(int error, std::string why);
    // Asks for a sign of life, at once.
    void probe();
    Duration heartbeat_interval() const;

    void answer(const Answer& answer) override;
    void close(const char* why) override;
    void confirm(const Fence& fence) override;
    bool tell_overdue(const Overdue& overdue) override;
    // As close(), when the owner itself is destroyed and must not be told. All paths of a server
    // are shut before the first is destroyed: that one's drain polls the queue of them all.
    void shut();

private:
    // Deciding: the owner does, about INFO. Refused: the refusal is on its way.
    enum class State : std::uint8_t { Connecting, Deciding, Connected, Refused, Closed };
    // Takes the client's key to a chunk back, then lets its request in.
    struct Revocation : rdma::Operation {
        ServerPath* path = nullptr;
        std::uint16_t connection = 0;
        RequestPlace place;
    };

    Channel::Shape shape_of(std::uint16_t number) const;
    bool register_chunks(ibv_pd* domain);
    rdma::Task<void> serve(std::uint16_t number, rdma::PrivateData answer);
    void on_beat() override;
    void await_next_step();

    void on_receive(Channel& channel, const ibv_wc& completion, ByteView data) override;
    void on_room(Channel& channel) override;
    void on_broken(Channel& /*channel*/, const char* why) override { close(why); }
    void on_service_acknowledged(const Channel& service);
    void on_immediate(Channel& channel, Immediate immediate);
    void on_request(Channel& channel, const RequestPlace& place);
    void let_in(std::uint16_t connection, const RequestPlace& place);
    void on_message(ByteView data);
    void on_last(const ibv_wc& completion, ByteView data);
    void on_info(ByteView data);
    void send_info();
    void bind_chunk(Channel& channel, std::uint16_t chunk, bool open, rdma::Operation* done);
    void send_answer(Channel& channel, const Answer& answer);
    ByteView beside_immediate(const Answer& answer, ByteSpan room);
    std::size_t room_for(const Answer& answer) const;

    rdma::Loop& loop_;
    Identity identity_;
    std::shared_ptr<ServerSession> session_;
    const ServerOptions& options_;
    Owner& owner_;
    State state_ = State::Connecting;
    bool proved_ = false;
    std::size_t connections_ = 0;
    std::uint64_t probe_ = 0;  // Where in the service channel it was posted; 0: none is awaited.
    std::uint64_t refusal_at_ = 0;
    std::string refusal_;
    std::vector<Revocation> revocations_;  // One per window; completed or flushed through lines_.
    std::vector<Line> lines_;
    std::optional<rdma::MemoryRegion> region_;  // All chunks.
    std::vector<rdma::MemoryWindow> windows_;   // One per chunk, if always_invalidate.
    std::vector<std::deque<Answer>> waiting_;   // For room, by connection, once it is admitted.
    std::vector<Fence> confirmations_;          // For room.
    Heartbeat heartbeat_;
    const Instant set_up_until_;  // A path that is not admitted then is closed.
    Beat beat_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::rtrs
