// See client_link.hpp.
#include "rtrs/client_link.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "feroce/resolve.hpp"

namespace feroce::rtrs {

namespace {

// The service connection carries few things at a time; a full queue only makes them wait.
constexpr std::uint32_t kServiceSends = 256;
constexpr std::uint32_t kServiceReceives = 256;
// A response with its key and note fits, and so do Fence and Overdue.
constexpr std::uint32_t kMessageSize = KeyResponse::kSize + kMaxNote;

// The kernel's server takes the largest queues it can get; more than this gains nothing.
constexpr std::uint32_t kMaxQueue = 4096;

constexpr Duration kBusyPause = std::chrono::milliseconds(20);

rdma::Error with_errno(const rdma::Error& error) {
    // A refusal of RTRS says why in its private data.
    const auto refusal = ConnectResponse::parse(error.reject_data);
    if (!refusal || refusal->error == 0) return error;
    return {refusal->error,
            "the server refuses the path: " + std::string(strerror(refusal->error))};
}

}  // namespace

ClientLink::ClientLink(rdma::Loop& loop, Plan plan, Owner& owner)
    : loop_(loop),
      plan_(std::move(plan)),
      owner_(owner),
      lines_(line_count()),
      sent_(line_count()),
      news_(loop),
      beat_(loop, *this),
      tasks_(loop) {}

ClientLink::~ClientLink() {
    ASSERT(inflight_.empty());
    shut();
    stop();
    areas_.reset();
    for (Line& line : lines_)
        if (line.channel) line.channel->stop();
}

void ClientLink::stop() {
    for (Line& line : lines_) {
        if (line.channel) line.channel->discard();
        if (line.connection) line.connection->close();
    }
}

Channel::Shape ClientLink::shape_of(std::uint16_t number) const {
    const std::uint32_t depth = announced_.geometry.queue_depth;
    if (number != 0)
        return {.sends = std::min(2 * depth + 64, kMaxQueue),
                .receives = std::min(depth + 64, kMaxQueue),
                .receive_size = kMessageSize,
                .first_receive_size = kMessageSize};
    return {.sends = kServiceSends,
            .receives = kServiceReceives + Channel::kSpareReceives,
            .receive_size = kMessageSize,
            .first_receive_size = static_cast<std::uint32_t>(
                InfoResponse::max_size(announced_.geometry) + kMessageSize),
            .outbox_size = InfoRequest::kSize};
}

rdma::Task<rdma::Result<>> ClientLink::connect() {
    if (auto done = co_await resolve().until(loop_.after(plan_.options->connect_timeout)); !done)
        co_return done;
    if (auto done = co_await connect_service(); !done) co_return done;
    if (auto done = co_await connect_others(); !done) co_return done;
    if (auto done = co_await exchange_info(); !done) co_return done;
    for (std::uint16_t i = 0; i < line_count(); ++i) tasks_.spawn(watch(i));
    co_return rdma::Result<>{};
}

// Names are asked for at every attempt: a machine may have moved.
rdma::Task<rdma::Result<>> ClientLink::resolve() {
    auto to = co_await rdma::resolve(loop_, plan_.address.destination);
    if (!to) co_return to.error();
    to_ = *std::move(to);
    if (plan_.address.source.empty()) co_return rdma::Result<>{};
    auto from = co_await rdma::resolve(loop_, plan_.address.source);
    if (!from) co_return from.error();
    from_ = from->front();
    co_return rdma::Result<>{};
}

// A name may have several addresses, of which the server listens at some.
rdma::Task<rdma::Result<>> ClientLink::connect_service() {
    const Instant end = loop_.after(plan_.options->connect_timeout);
    for (;;) {
        auto done = co_await connect_service_line();
        // Many ask at a time: ours comes later.
        if (!done && done.error().code == EBUSY && loop_.now() < end) {
            if (auto slept = co_await loop_.sleep(kBusyPause); !slept) co_return slept;
            continue;
        }
        if (done || failed_ || to_.size() == 1) co_return done;
        to_.erase(to_.begin());
    }
}

// A queue pair that knows its way to the server, with room for what a channel sends.
rdma::Task<rdma::Result<>> ClientLink::resolve_line(std::uint16_t number) {
    const SessionOptions& options = *plan_.options;
    const Channel::Shape shape = shape_of(number);
    rdma::ConnectionOptions wanted;
    wanted.from = from_;
    wanted.send_depth = shape.sends;
    wanted.recv_depth = shape.receives;
    wanted.sge = kMaxGather;
    wanted.inline_bytes = Channel::kInlineSize;
    wanted.reads = 0;
    wanted.common_completions = true;
    wanted.timeout = options.connect_timeout;
    const auto to = to_.front().with_port(options.port);
    auto resolved = co_await rdma::Connection::resolve(loop_, to, wanted);
    if (!resolved) co_return resolved.error();
    lines_[number].connection = *std::move(resolved);
    co_return rdma::Result<>{};
}

rdma::Task<rdma::Result<>> ClientLink::ask_for_line(std::uint16_t number) {
    ConnectRequest request;
    request.connection = number;
    request.connection_count = line_count();
    request.reconnects = plan_.incarnation;
    request.path = plan_.path;
    request.session = plan_.session;
    request.may_create = true;
    request.extension = plan_.options->extension ? kExtensionLevel : 0;
    std::array<std::byte, ConnectRequest::kSize> bytes;
    request.emit(bytes);
    auto connected = co_await lines_[number].connection->connect(rdma::PrivateData(bytes));
    if (!connected) co_return with_errno(connected.error());
    co_return connected;
}

rdma::Result<> ClientLink::start_channel(std::uint16_t number) {
    Line& line = lines_[number];
    line.channel = std::make_unique<Channel>(*this, number, shape_of(number), loop_);
    if (line.channel->start(line.connection->queue_pair())) return {};
    return rdma::Error(ENOMEM, "the device refuses memory for a session's receives");
}

// Its channel is made when the server has told the session's geometry. Nothing is sent to it
// before.
rdma::Task<rdma::Result<>> ClientLink::connect_service_line() {
    if (auto resolved = co_await resolve_line(0); !resolved) co_return resolved;
    if (auto connected = co_await ask_for_line(0); !connected) co_return connected;
    const auto response = ConnectResponse::parse(lines_[0].connection->peer_data().bytes());
    if (!response) co_return response.error();
    if (response->error != 0)
        co_return rdma::Error(response->error, "the server took the connection and names an error");
    announced_ = *response;
    co_return start_channel(0);
}

// The server may send at once.
rdma::Task<rdma::Result<>> ClientLink::connect_data_line(std::uint16_t number) {
    if (auto resolved = co_await resolve_line(number); !resolved) co_return resolved;
    if (auto started = start_channel(number); !started) co_return started;
    co_return co_await ask_for_line(number);
}

rdma::Task<void> ClientLink::connect_beside(std::uint16_t number,
                                            std::optional<rdma::Error>& failure) {
    auto done = co_await connect_data_line(number);
    if (!done && !failure) failure = done.error();
}

rdma::Task<rdma::Result<>> ClientLink::connect_others() {
    if (!extended()) {
        for (std::uint16_t i = 1; i < line_count(); ++i)
            if (auto done = co_await connect_data_line(i); !done) co_return done;
        co_return rdma::Result<>{};
    }
    std::optional<rdma::Error> failure;
    rdma::TaskGroup together(loop_);
    for (std::uint16_t i = 1; i < line_count(); ++i) together.spawn(connect_beside(i, failure));
    if (auto joined = co_await together.join(); !joined) co_return joined;
    if (failure) co_return *failure;
    co_return rdma::Result<>{};
}

rdma::Task<rdma::Result<>> ClientLink::exchange_info() {
    Channel& service = *lines_[0].channel;
    InfoRequest{plan_.name}.emit(service.outbox().first<InfoRequest::kSize>());
    service.post_message(InfoRequest::kSize);
    named_ = true;
    const Instant deadline = loop_.after(plan_.options->connect_timeout);
    while (!info_ && !failed_) {
        auto waited = co_await news_.wait().until(deadline);
        if (waited) continue;
        if (waited.error().code != ETIMEDOUT) co_return waited;
        co_return rdma::Error(ETIMEDOUT,
                              "the server accepted the path but sent no INFO; is the "
                              "session's name taken there?");
    }
    if (refusal_)
        co_return rdma::Error(refusal_->error, "the server refuses the session: " + refusal_->text);
    if (failed_)
        co_return rdma::Error(ECONNRESET,
                              "the server closed the path while it was set up (is the "
                              "session's name taken there?): " +
                                  why_);
    auto chunks = info_->chunks(announced_.geometry);
    if (!chunks) co_return chunks.error();
    chunks_ = *std::move(chunks);
    co_return rdma::Result<>{};
}

rdma::Task<void> ClientLink::watch(std::uint16_t number) {
    (void)co_await lines_[number].connection->closed();
    const auto cause = lines_[number].connection->cause();
    fail(cause ? cause->why : "the connection closed");
}

void ClientLink::start(SessionMemory& memory) {
    memory_ = &memory;
    areas_.emplace(memory, lines_[0].connection->domain());
    const HeartbeatOptions usual = extended() ? HeartbeatOptions{} : kKernelHeartbeat;
    heartbeat_.emplace(plan_.options->heartbeat.value_or(usual), loop_.now(),
                       extended() ? Heartbeat::Peer::Ours : Heartbeat::Peer::Kernel);
    beat_.arm(heartbeat_->due());
}

std::size_t ClientLink::line_of(const Request& request) const {
    const std::size_t others = lines_.size() - 1;
    if (request.service || others == 0) return 0;
    return others == 1 ? 1 : 1 + request.processor % others;  // A division takes its time.
}

bool ClientLink::send(Request& request) {
    const std::size_t line = line_of(request);
    Channel& channel = *lines_[line].channel;
    ASSERT(channel.has_room(2));
    const SendPlan plan{*memory_, *areas_, announced_.geometry, extended()};
    if (!send_request(request, plan, chunks_[request.permit], channel))
        fail("the device refuses to register the memory of a request");
    ++sent_[line];
    return !failed_;
}

bool ClientLink::uses_memory_of(const Request& request) const {
    if (request.staged || request.data_size == 0) return false;
    if (request.direction == Direction::Read) return true;
    return channel_of(request).acknowledged() < request.position;
}

bool ClientLink::send_fence(const Fence& fence) {
    Channel& service = *lines_[0].channel;
    if (failed_ || !service.has_room(1)) return false;
    std::array<std::byte, Fence::kSize> bytes;
    fence.emit(bytes, MessageType::FenceRequest);
    service.post_inline_message(bytes);
    return !failed_;
}

void ClientLink::say_goodbye() {
    if (!named_ || failed_ || goodbye_ != 0 || !extended()) return;
    Channel& service = *lines_[0].channel;
    if (!service.has_room(1)) return;
    std::array<std::byte, rtrs::Goodbye::kSize> bytes;
    rtrs::Goodbye::emit(bytes);
    service.post_inline_message(bytes, true);
    goodbye_ = service.posted();
}

ClientLink::Goodbye ClientLink::goodbye() const {
    if (goodbye_ == 0) return Goodbye::Unsaid;
    if (lines_[0].channel->acknowledged() >= goodbye_) return Goodbye::Arrived;
    return failed_ ? Goodbye::Unsaid : Goodbye::OnItsWay;
}

void ClientLink::on_beat() {
    Channel& service = *lines_[0].channel;
    switch (heartbeat_->on_timer(loop_.now())) {
        case Heartbeat::Action::Send:
            if (service.has_room(1)) service.post_immediate(kHeartbeat, true);
            break;
        case Heartbeat::Action::Probe:
            if (service.has_room(1)) service.post_probe();
            break;
        case Heartbeat::Action::Dead:
            return fail("the server gave no sign of life");
        case Heartbeat::Action::Nothing:
            break;
    }
    if (!failed_) beat_.arm(heartbeat_->due());
}

void ClientLink::shut() {
    failed_ = true;
    beat_.cancel();
}

void ClientLink::fail(const std::string& why) {
    if (failed_) return;
    shut();
    why_ = why;
    news_.notify_all();
    owner_.on_failed(*this);
}

void ClientLink::give_up(const std::string& why) {
    if (!failed_) given_up_ = true;
    fail(why);
}

void ClientLink::on_receive(Channel& channel, const ibv_wc& completion, ByteView data) {
    if (failed_) return;
    if (heartbeat_) heartbeat_->on_traffic();
    if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0)
        return on_immediate(channel, be32toh(completion.imm_data), data);
    // A SEND WITH INVALIDATE brings nothing but its effect.
    if ((completion.wc_flags & IBV_WC_WITH_INV) == 0) on_message(data);
}

void ClientLink::on_immediate(Channel& channel, std::uint32_t raw, ByteView data) {
    const auto immediate = Immediate::parse(raw);
    if (!immediate) return fail("the server sent an immediate that means nothing");
    if (immediate->type == ImmediateType::Heartbeat) {
        if (channel.has_room(1)) channel.post_immediate(kHeartbeatAck);
        return;
    }
    if (immediate->type == ImmediateType::HeartbeatAck) {
        if (heartbeat_) heartbeat_->on_ack(loop_.now());
        return;
    }
    const auto response = Response::parse(announced_.geometry, *immediate);
    if (!response || !heartbeat_) return fail("the server sent a response that answers nothing");
    on_response(*response, data);
}

void ClientLink::on_response(const Response& response, ByteView data) {
    if (announced_.new_keys) {
        const auto key = KeyResponse::parse(data);
        if (!key || key->chunk != response.chunk)
            return fail("the server's response lacks the new key of its chunk");
        chunks_[response.chunk].key = key->key;
        data = data.subspan(KeyResponse::kSize);
    }
    owner_.on_answer(*this, response, extended() ? data : ByteView());
}

void ClientLink::on_message(ByteView data) {
    const auto type = message_type(data);
    if (type && *type == MessageType::InfoResponse && !info_) {
        auto info = InfoResponse::parse(data);
        if (!info) return fail(info.error().why);
        info_ = *std::move(info);
        news_.notify_all();
        return;
    }
    if (type && *type == MessageType::Refusal && !info_) {
        auto refusal = Refusal::parse(data);
        if (!refusal) return fail(refusal.error().why);
        refusal_ = *std::move(refusal);
        return fail(refusal_->text);
    }
    if (type && *type == MessageType::Overdue && heartbeat_ && extended()) {
        const auto overdue = Overdue::parse(data);
        if (!overdue || overdue->chunk >= announced_.geometry.queue_depth)
            return fail("the server sent a message that means nothing");
        return owner_.on_overdue(*this, *overdue);
    }
    const auto fence = Fence::parse(data, MessageType::FenceResponse);
    // Before the session has taken the link up nobody has asked for a fence.
    if (!fence || !heartbeat_) return fail("the server sent a message that means nothing");
    owner_.on_fence(*fence);
}

void ClientLink::on_room(Channel& /*channel*/) {
    if (failed_ || !heartbeat_) return;
    heartbeat_->on_acknowledged();
    owner_.on_room();
}

void ClientLink::on_broken(Channel& /*channel*/, const char* why) {
    fail(why);
}

}  // namespace feroce::rtrs
