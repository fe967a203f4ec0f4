#include "feroce/connection.hpp"

#include <cerrno>
#include <utility>

#include "feroce/transfer.hpp"
#include "rdma/connection_core.hpp"
#include "rdma/failure.hpp"

namespace feroce::rdma {
namespace {

using Stage = ConnectionCore::Stage;

int milliseconds(Duration time) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

// As the device takes it: 4.096 us times two to that power, which has five bits.
std::uint8_t ack_timeout_code(Duration time) {
    std::uint8_t code = 1;  // 0 would be for ever.
    while (code < 31 && Duration(4096) * (std::uint64_t{1} << code) < time) ++code;
    return code;
}

}  // namespace

Connection::Connection(std::unique_ptr<ConnectionCore> core) : core_(std::move(core)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

Task<Result<Connection>> Connection::resolving(Loop& loop, Address to, ConnectionOptions options) {
    if (Result<> good = to.check(); !good) co_return good.error();
    if (options.from)
        if (Result<> good = options.from->check(); !good) co_return good.error();
    Result<rdma_event_channel*> channel = loop.cm_channel();
    if (!channel) co_return channel.error();
    rdma_cm_id* id = nullptr;
    if (::rdma_create_id(*channel, &id, nullptr, RDMA_PS_TCP) != 0)
        co_return failure("no id for a connection could be made");
    Connection out(std::make_unique<ConnectionCore>(loop, id, options, false));
    if (options.ack_timeout) {
        std::uint8_t code = ack_timeout_code(*options.ack_timeout);
        if (::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code, 1) != 0)
            co_return failure("the ACK timeout of a connection could not be set");
    }
    auto* from = options.from ? const_cast<sockaddr*>(options.from->raw()) : nullptr;
    const int timeout_ms = milliseconds(options.timeout);
    if (::rdma_resolve_addr(id, from, const_cast<sockaddr*>(to.raw()), timeout_ms) != 0)
        co_return failure("no device of this machine leads to " + to.text());
    if (Result<> done = co_await out.core_->reach(Stage::Addressed, "looking for it"); !done)
        co_return done.error();
    if (::rdma_resolve_route(id, timeout_ms) != 0) co_return failure("no route to " + to.text());
    if (Result<> done = co_await out.core_->reach(Stage::Routed, "looking for a route"); !done)
        co_return done.error();
    if (Result<> made = out.core_->make_queue_pair(); !made) co_return made.error();
    co_return std::move(out);
}

Task<Result<>> Connection::connecting(PrivateData data) {
    rdma_conn_param parameters = core_->parameters(data);
    if (::rdma_connect(raw(), &parameters) != 0)
        co_return failure("no request for a connection could be sent to " + peer().text());
    co_return co_await core_->reach(Stage::Open, "connecting");
}

Task<Result<Connection>> Connection::connecting(Loop& loop, Address to, ConnectionOptions options,
                                                PrivateData data) {
    Result<Connection> resolved = co_await resolve(loop, std::move(to), std::move(options));
    if (!resolved) co_return resolved;
    if (Result<> done = co_await resolved->connect(data); !done) co_return done.error();
    co_return resolved;
}

Task<Result<>> Connection::accepting(PrivateData data) {
    rdma_conn_param parameters = core_->parameters(data);
    core_->mark_answered();
    if (::rdma_accept(raw(), &parameters) != 0)
        co_return failure("the request of " + peer().text() + " could not be accepted");
    co_return co_await core_->reach(Stage::Open, "accepting its request");
}

bool Connection::is_open() const {
    return core_->is_open();
}

std::optional<Error> Connection::cause() const {
    return core_->cause();
}

Task<Result<>> Connection::closing() {
    while (!core_->cause())
        if (Result<> waited = co_await core_->changed().wait(); !waited) co_return waited;
    co_return Result<>{};
}

void Connection::close() {
    core_->close(Error(ECONNABORTED, "this program closed the connection"));
}

void Connection::drain() {
    close();
    if (queue_pair() != nullptr) core_->drain();
}

const PrivateData& Connection::peer_data() const {
    return core_->peer_data();
}

Address Connection::peer() const {
    return Address(*::rdma_get_peer_addr(raw()));
}

Address Connection::local() const {
    return Address(*::rdma_get_local_addr(raw()));
}

Loop& Connection::loop() const {
    return core_->loop();
}

ibv_pd* Connection::domain() const {
    return queue_pair()->pd;
}

rdma_cm_id* Connection::raw() const {
    return core_->id();
}

ibv_qp* Connection::queue_pair() const {
    return raw()->qp;
}

Result<Buffer> Connection::allocate(std::size_t bytes, Access access) const {
    return Buffer::create(domain(), loop().runtime().memory(), bytes, access);
}

Result<> Connection::post(std::span<Work> list, std::size_t* posted) {
    return core_->post(list, posted);
}

Result<> Connection::post_receive(const Regions& into, Operation& operation) {
    return core_->post_receive(into, operation);
}

Result<> Connection::judge(const ibv_wc& completion) {
    return core_->judge(completion);
}

Transfer Connection::send(const Regions& from) {
    return {*core_, Work::send(from)};
}

Transfer Connection::send_imm(const Regions& from, std::uint32_t immediate) {
    return {*core_, Work::send_imm(from, immediate)};
}

Transfer Connection::write(const RemoteRegion& to, const Regions& from) {
    return {*core_, Work::write(to, from)};
}

Transfer Connection::write_imm(const RemoteRegion& to, const Regions& from,
                               std::uint32_t immediate) {
    return {*core_, Work::write_imm(to, from, immediate)};
}

Transfer Connection::read(const Regions& to, const RemoteRegion& from) {
    return {*core_, Work::read(to, from)};
}

AtomicTransfer Connection::compare_swap(const RemoteRegion& word, std::uint64_t expected,
                                        std::uint64_t desired) {
    return {*core_, AtomicTransfer::Kind::CompareSwap, word, {expected, desired}};
}

AtomicTransfer Connection::fetch_add(const RemoteRegion& word, std::uint64_t add) {
    return {*core_, AtomicTransfer::Kind::FetchAdd, word, {add, 0}};
}

Batch Connection::batch(std::span<Work> list) {
    return {*core_, list};
}

Receive Connection::receive(const Regions& into) {
    return {*core_, into};
}

}  // namespace feroce::rdma
