// ClientLink: one incarnation of a path at the client, from its first connection to its failure:
// the connections, what the server announced, the keys of its chunks, the heartbeat, and the
// requests in flight. When it ends its queue pairs are gone, so nothing of the server's that still
// travels through it can touch the caller's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "feroce/address.hpp"
#include "feroce/rtrs/options.hpp"
#include "feroce/task_group.hpp"
#include "rtrs/channel.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/heartbeat.hpp"
#include "rtrs/line.hpp"
#include "rtrs/request_book.hpp"
#include "rtrs/request_sender.hpp"

namespace feroce::rtrs {

class ClientLink final : public Channel::Owner, private Beat::Owner {
public:
    struct Plan {
        std::string name;  // Of the session.
        PathAddress address;
        Uuid session;
        Uuid path;
        std::uint16_t incarnation = 0;
        const SessionOptions* options = nullptr;
    };
    // Called while completions are handled: must not end the link.
    class Owner {
    public:
        virtual void on_answer(ClientLink& link, const Response& response, ByteView note) = 0;
        virtual void on_overdue(ClientLink& link, const Overdue& overdue) = 0;
        virtual void on_fence(const Fence& fence) = 0;
        virtual void on_room() = 0;
        virtual void on_failed(ClientLink& link) = 0;

    protected:
        ~Owner() = default;
    };

    ClientLink(rdma::Loop& loop, Plan plan, Owner& owner);
    ~ClientLink();
    ClientLink(const ClientLink&) = delete;
    ClientLink& operator=(const ClientLink&) = delete;

    // The service connection first, then the others: together if the server is one of ours, one
    // after the other if it is the kernel; then the exchange of INFO.
    rdma::Task<rdma::Result<>> connect();
    // Once the session has memory for the announced shape.
    void start(SessionMemory& memory);

    const ConnectResponse& announced() const { return announced_; }
    bool extended() const { return announced_.extension != 0; }
    Fence fence() const { return {plan_.path, plan_.incarnation, false}; }
    bool failed() const { return failed_; }
    const std::string& why() const { return why_; }
    // Failed because a caller gave up a request, not by itself.
    bool given_up() const { return given_up_; }
    Duration latency() const { return heartbeat_ ? heartbeat_->latency() : Duration{}; }
    InFlight& inflight() { return inflight_; }
    RegisteredAreas& areas() { return *areas_; }
    const std::vector<std::uint64_t>& sent() const { return sent_; }  // Requests, by connection.

    bool has_room(const Request& request) const { return channel_of(request).has_room(kSpare); }
    bool send(Request& request);          // False, and failed, if the device refuses.
    bool send_fence(const Fence& fence);  // False if there is no room now.
    void say_goodbye();                   // The session is closed.
    enum class Goodbye : std::uint8_t { Unsaid, OnItsWay, Arrived };
    Goodbye goodbye() const;
    // Whether the device or the server may still use the memory of a request's caller: the server
    // that of a read, the device that of a write which has not arrived. Data that was copied into
    // the session's own memory is none of the caller's.
    bool uses_memory_of(const Request& request) const;
    void fail(const std::string& why);
    void give_up(const std::string& why);
    // As fail(), when the owner itself is destroyed and must not be told. All links of a session
    // are shut before the first is destroyed: that one's drain polls the queue of them all.
    void shut();
    void stop();  // The server can reach no memory through this any more.

private:
    // Room on every channel that is kept for heartbeats and fences.
    static constexpr std::size_t kSpare = 8;

    rdma::Task<rdma::Result<>> resolve();
    rdma::Task<rdma::Result<>> connect_service();
    rdma::Task<rdma::Result<>> connect_service_line();
    rdma::Task<rdma::Result<>> connect_data_line(std::uint16_t number);
    rdma::Task<rdma::Result<>> resolve_line(std::uint16_t number);
    rdma::Task<rdma::Result<>> ask_for_line(std::uint16_t number);
    rdma::Result<> start_channel(std::uint16_t number);
    rdma::Task<void> connect_beside(std::uint16_t number, std::optional<rdma::Error>& failure);
    rdma::Task<rdma::Result<>> connect_others();
    rdma::Task<rdma::Result<>> exchange_info();
    rdma::Task<void> watch(std::uint16_t number);
    // With the service connection.
    std::uint16_t line_count() const {
        return static_cast<std::uint16_t>(plan_.options->connections + 1);
    }
    Channel::Shape shape_of(std::uint16_t number) const;
    // The connection of the caller's processor, also when the request is sent again.
    std::size_t line_of(const Request& request) const;
    Channel& channel_of(const Request& request) const { return *lines_[line_of(request)].channel; }
    void on_beat() override;

    void on_receive(Channel& channel, const ibv_wc& completion, ByteView data) override;
    void on_room(Channel& channel) override;
    void on_broken(Channel& channel, const char* why) override;
    void on_immediate(Channel& channel, std::uint32_t raw, ByteView data);
    void on_response(const Response& response, ByteView data);
    void on_message(ByteView data);

    rdma::Loop& loop_;
    Plan plan_;
    Owner& owner_;
    std::vector<rdma::Address> to_;  // Of the server's name; when connected the one that answers.
    std::optional<rdma::Address> from_;
    ConnectResponse announced_;
    std::vector<RemoteChunk> chunks_;
    std::vector<Line> lines_;
    std::vector<std::uint64_t> sent_;
    SessionMemory* memory_ = nullptr;  // From start() on.
    std::optional<RegisteredAreas> areas_;
    std::optional<Heartbeat> heartbeat_;
    InFlight inflight_;
    bool named_ = false;  // The server was told the session's name: it may remember it.
    bool failed_ = false;
    bool given_up_ = false;
    std::uint64_t goodbye_ = 0;  // Its place among the sends of the service connection.
    std::string why_;
    std::optional<InfoResponse> info_;
    std::optional<Refusal> refusal_;
    rdma::Signal news_;  // INFO has come, or it has failed.
    Beat beat_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::rtrs
