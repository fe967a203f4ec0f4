// See server_path.hpp. What is sent to the client is in server_answer.cpp.
#include "rtrs/server_path.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace feroce::rtrs {

namespace {

// What the kernel's client counts on for the service connection.
constexpr std::uint32_t kServerReceives = 512;
constexpr std::uint32_t kServerSends = 256;
constexpr std::uint32_t kMaxServerQueue = 8192;
// A path whose set-up gets no further in this time is closed: no connection of it comes, nor INFO,
// nor the decision about it. The kernel's server has the same time for all of these together.
constexpr HeartbeatOptions kSetUpTime{std::chrono::seconds(30), 0};
// All steps together: a client must not hold a path without ever being admitted.
constexpr Duration kAllSetUpTime = 10 * kSetUpTime.interval;
constexpr Duration kRefusalTime = std::chrono::seconds(1);  // For a refusal to arrive.

HeartbeatOptions heartbeat_of(const ServerOptions& options, bool extended) {
    return options.heartbeat.value_or(extended ? HeartbeatOptions{} : kKernelHeartbeat);
}

}  // namespace

ServerPath::ServerPath(rdma::Loop& loop, const Identity& identity,
                       std::shared_ptr<ServerSession> session, const ServerOptions& options,
                       Owner& owner)
    : loop_(loop),
      identity_(identity),
      session_(std::move(session)),
      options_(options),
      owner_(owner),
      lines_(identity.connections),
      heartbeat_(kSetUpTime, loop.now(), Heartbeat::Peer::Kernel),
      set_up_until_(loop.now() + kAllSetUpTime),
      beat_(loop, *this),
      tasks_(loop) {
    beat_.arm(heartbeat_.due());
    session_->add_path(identity_.number, *this);
}

// On a machine that is overloaded all steps together take longer, when many clients come at once.
// There are two more than the path has connections. A peer that may not be there gets no more time.
void ServerPath::await_next_step() {
    if (!proved_) return;
    heartbeat_ = Heartbeat(kSetUpTime, loop_.now(), Heartbeat::Peer::Kernel);
    beat_.arm(std::min(heartbeat_.due(), set_up_until_));
}

ServerPath::~ServerPath() {
    shut();
    session_->path_closed(identity_.number);
    for (Line& line : lines_)
        if (line.connection) line.connection->close();
    for (Line& line : lines_)
        if (line.connection) line.connection->drain();  // A goodbye may be among what arrived.
    windows_.clear();
    region_.reset();
    for (Line& line : lines_)
        if (line.channel) line.channel->stop();
}

Channel::Shape ServerPath::shape_of(std::uint16_t number) const {
    const std::uint32_t depth = session_->geometry().queue_depth;
    const std::uint32_t per_answer = options_.always_invalidate ? 5 : 3;
    if (number != 0)
        return {.sends = std::min(depth * per_answer + 64, kMaxServerQueue),
                .receives = std::min(depth + 16 + Channel::kSpareReceives, kMaxServerQueue),
                .receive_size = KeyResponse::kSize,
                .first_receive_size = KeyResponse::kSize};
    return {
        .sends = kServerSends + (options_.always_invalidate ? depth : 0),
        .receives = kServerReceives + Channel::kSpareReceives,
        .receive_size = InfoRequest::kSize,
        .first_receive_size = InfoRequest::kSize,
        .outbox_size = static_cast<std::uint32_t>(InfoResponse::max_size(session_->geometry()))};
}

std::string ServerPath::peer() const {
    return lines_[0].connection->peer().with_port(0).text();
}

Result<void> ServerPath::check(const ConnectRequest& request) const {
    if (state_ != State::Connecting)
        return Error{ECONNRESET, "a connection for a path that is set up already"};
    if (request.connection_count != lines_.size())
        return Error{ECONNRESET, "connections of one path disagree on their number"};
    if (lines_[request.connection].connection)
        return Error{ECONNRESET, "a connection of a path comes twice"};
    return {};
}

rdma::Result<> ServerPath::add(std::uint16_t number, rdma::ConnectionRequest request,
                               const ConnectResponse& answer) {
    const Channel::Shape shape = shape_of(number);
    rdma::ConnectionOptions wanted;
    wanted.send_depth = shape.sends;
    wanted.recv_depth = shape.receives;
    wanted.sge = 1;
    wanted.inline_bytes = Channel::kInlineSize;
    wanted.reads = 0;
    wanted.common_completions = true;
    auto made = std::move(request).prepare(loop_, wanted);
    if (!made) return made.error();
    Line& line = lines_[number];
    line.channel = std::make_unique<Channel>(*this, number, shape, loop_);
    line.connection = *std::move(made);
    ++connections_;
    await_next_step();
    if (!line.channel->start(line.connection->queue_pair()))
        return rdma::Error(ENOMEM, "the device refuses to register a path's memory");
    std::array<std::byte, ConnectResponse::kSize> bytes;
    answer.emit(bytes);
    tasks_.spawn(serve(number, rdma::PrivateData(bytes)));
    return {};
}

bool ServerPath::register_chunks(ibv_pd* domain) {
    using rdma::Access;
    const Access access = options_.always_invalidate ? Access::WindowBind : Access::RemoteWrite;
    auto region = rdma::MemoryRegion::create(domain, session_->memory(), access);
    if (!region) return false;
    region_ = *std::move(region);
    if (!options_.always_invalidate) return true;
    const std::uint16_t depth = session_->geometry().queue_depth;
    revocations_ = std::vector<Revocation>(depth);
    for (std::uint16_t i = 0; i < depth; ++i) {
        auto window = rdma::MemoryWindow::create(domain);
        if (!window) return false;
        windows_.push_back(*std::move(window));
        revocations_[i].path = this;
        revocations_[i].complete = [](rdma::Operation& operation, const ibv_wc& completion) {
            auto& self = static_cast<Revocation&>(operation);
            if (self.path->closed()) return;
            if (completion.status != IBV_WC_SUCCESS)
                return self.path->close("a client's key could not be taken back");
            self.path->let_in(self.connection, self.place);
        };
    }
    return true;
}

rdma::Task<void> ServerPath::serve(std::uint16_t number, rdma::PrivateData answer) {
    rdma::Connection& connection = *lines_[number].connection;
    auto accepted = co_await connection.accept(answer);
    if (accepted) {
        proved_ = true;
        (void)co_await connection.closed();
    }
    close(accepted ? "a connection of the path was closed" : "a connection did not come about");
}

void ServerPath::close(const char* why) {
    if (closed()) return;
    shut();
    owner_.on_closed(*this, why);
}

void ServerPath::shut() {
    state_ = State::Closed;
    beat_.cancel();
}

void ServerPath::on_beat() {
    const auto action = heartbeat_.on_timer(loop_.now());
    if (state_ == State::Refused) return close(refusal_.c_str());
    if (state_ != State::Connected) return close("the path was not set up in time");
    if (action == Heartbeat::Action::Dead) return close("the client gave no sign of life");
    Channel& service = *lines_[0].channel;
    if (action == Heartbeat::Action::Send && service.has_room(1))
        service.post_immediate(kHeartbeat, true);
    if (action == Heartbeat::Action::Probe && service.has_room(1)) service.post_probe();
    if (!closed()) beat_.arm(heartbeat_.due());
}

void ServerPath::on_receive(Channel& channel, const ibv_wc& completion, ByteView data) {
    if (closed()) return on_last(completion, data);
    proved_ = true;
    heartbeat_.on_traffic();
    if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0) {
        if (channel.number() != 0) return close("a message came on a connection for requests");
        return on_message(data);
    }
    const auto immediate = Immediate::parse(be32toh(completion.imm_data));
    if (!immediate) return close("an immediate means nothing");
    on_immediate(channel, *immediate);
}

void ServerPath::on_immediate(Channel& channel, Immediate immediate) {
    switch (immediate.type) {
        case ImmediateType::Heartbeat:
            if (channel.has_room(1)) channel.post_immediate(kHeartbeatAck);
            return;
        case ImmediateType::HeartbeatAck:
            if (std::exchange(probe_, 0) != 0) owner_.on_sign(*this);
            return heartbeat_.on_ack(loop_.now());
        case ImmediateType::Request:
            break;
        case ImmediateType::Response:
        case ImmediateType::ResponseInvalidated:
            return close("a client sent a response");
    }
    if (state_ != State::Connected) return close("a request came before the INFO exchange");
    const auto place = RequestPlace::parse(session_->geometry(), immediate.payload);
    if (!place) return close(place.error().why);
    on_request(channel, *place);
}

void ServerPath::on_request(Channel& channel, const RequestPlace& place) {
    if (windows_.empty()) return let_in(channel.number(), place);
    if (!channel.has_room(1)) return close("more requests came than there are chunks");
    Revocation& revocation = revocations_[place.chunk];
    revocation.connection = channel.number();
    revocation.place = place;
    bind_chunk(channel, place.chunk, false, &revocation);
}

void ServerPath::let_in(std::uint16_t connection, const RequestPlace& place) {
    if (auto fine = session_->arrived(identity_.number, connection, place); !fine)
        close(fine.error().why);
}

void ServerPath::on_message(ByteView data) {
    if (state_ == State::Connecting) return on_info(data);
    if (state_ != State::Connected) return close("a message came before the INFO exchange");
    if (session_->identity().extended && Goodbye::is(data)) return session_->say_goodbye();
    const auto fence = Fence::parse(data, MessageType::FenceRequest);
    if (!fence || !session_->identity().extended) return close("a message means nothing");
    owner_.on_fence(*this, *fence);
}

// The path may be closed, by the end of another connection, before a message that arrived earlier.
void ServerPath::on_last(const ibv_wc& completion, ByteView data) {
    const bool message = (completion.wc_flags & IBV_WC_WITH_IMM) == 0;
    const bool was_admitted = region_.has_value() && session_->identity().extended;
    if (message && was_admitted && Goodbye::is(data)) session_->say_goodbye();
}

void ServerPath::on_info(ByteView data) {
    const auto info = InfoRequest::parse(data);
    if (!info) return close(info.error().why);
    const auto missing = [](const Line& line) { return !line.connection; };
    if (std::any_of(lines_.begin(), lines_.end(), missing))
        return close("INFO came before all connections of the path");
    state_ = State::Deciding;
    await_next_step();
    owner_.on_info(*this, info->name);
}

Duration ServerPath::heartbeat_interval() const {
    return heartbeat_of(options_, session_->identity().extended).interval;
}

void ServerPath::admit() {
    if (closed()) return;
    if (!register_chunks(lines_[0].connection->domain()))
        return refuse(ENOMEM, "the device refuses to register a path's memory");
    waiting_.resize(lines_.size());
    state_ = State::Connected;
    const bool extended = session_->identity().extended;
    heartbeat_ = Heartbeat(heartbeat_of(options_, extended), loop_.now(),
                           extended ? Heartbeat::Peer::Ours : Heartbeat::Peer::Kernel);
    beat_.arm(heartbeat_.due());
    send_info();
}

// The kernel knows no refusals; its client learns of the end of the connection only.
void ServerPath::refuse(int error, std::string why) {
    if (closed()) return;
    refusal_ = std::move(why);
    if (!session_->identity().extended) return close(refusal_.c_str());
    state_ = State::Refused;
    Channel& service = *lines_[0].channel;
    service.post_message(Refusal{error, refusal_}.emit(service.outbox()), true);
    refusal_at_ = service.posted();
    beat_.arm(loop_.now() + kRefusalTime);
}

void ServerPath::probe() {
    Channel& service = *lines_[0].channel;
    if (state_ != State::Connected || !service.has_room(1)) return;
    if (session_->identity().extended)
        service.post_probe();
    else
        service.post_immediate(kHeartbeat, true);
    probe_ = service.posted();
}

}  // namespace feroce::rtrs
