#include "process/cm_server.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/rollback.hpp"
#include "base/shortage.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;

// Messages that are collected before they leave.
constexpr std::size_t kOutbox = 64;
// When to do again what there was no memory for.
constexpr Duration kShortage = 50ms;

}  // namespace

Result<std::unique_ptr<CmServer>> CmServer::start(Process& process) {
    std::unique_ptr<CmServer> server(new CmServer(process));
    if (Result<void> opened = server->open(); !opened) return opened.error();
    return server;
}

Result<void> CmServer::open() {
    TRY(process_.open());
    open_ = true;
    Result<std::unique_ptr<host::Rendezvous>> rendezvous =
        process_.host().open_rendezvous(process_.shard(0).slot(), process_.shard(0).requests_fd());
    if (!rendezvous) return rendezvous.error();
    rendezvous_ = std::move(*rendezvous);
    Result<std::unique_ptr<CmGsi>> gsi = CmGsi::open(process_, [this] { rendezvous_->wake(); });
    if (!gsi) return gsi.error();
    gsi_ = std::move(*gsi);
    arrivals_.emplace(process_.shard(0), *gsi_, *rendezvous_);
    estate_ = process_.host().open_estate(gsi_->slot());
    cm::Config config;
    config.slot = gsi_->slot();
    const std::uint64_t kind = process_.plays_foreign() ? 0 : cm::kFeroceGuid;
    config.ca_guid = kind << 32 | (random() & 0xffff'ffff);
    config.keepalive = process_.keepalive();
    cm::MadPort& port = *this;
    cm::EventSink& sink = *this;
    manager_.emplace(config, process_.host().random(), port, sink);
    addresses_ = local_addresses();
    outbox_.reserve(kOutbox);
    Result<std::unique_ptr<CmThread>> thread =
        CmThread::start(process_.host(), *rendezvous_, *this);
    if (!thread) return thread.error();
    thread_ = std::move(*thread);
    process_.shard(0).serve_mail([this] { bring(); });
    on_death();  // It may be why we were started.
    return {};
}

CmServer::~CmServer() {
    std::unique_ptr<CmUser> user;
    {
        const std::lock_guard lock(mutex_);
        user.swap(user_);
    }
    user.reset();  // Closes its devices, which takes other locks.
    if (thread_ != nullptr) process_.shard(0).serve_mail({});
    thread_.reset();
    gsi_.reset();
    estate_.reset();
    if (open_) process_.close();
}

Instant CmServer::before_sleep() {
    const std::lock_guard lock(mutex_);
    const Instant now = process_.host().now();
    thread_sleeps_until_ = manager_->next_wakeup();
    Instant retry = now + kShortage;
    if (with_memory([&] { retry = rendezvous_->retry(now); }) && look_again_)
        retry = std::min(retry, now + kShortage);
    thread_sleeps_until_ = std::min(thread_sleeps_until_, retry);
    return thread_sleeps_until_;
}

void CmServer::turn(bool requests_waiting) {
    Session session(*this);
    for (const CmArrival& a : arrivals_->collect(requests_waiting))
        session.manager().receive(session.now(), a.message.source, a.message.destination,
                                  a.message.mad, a.origin);
    look_again_ = !with_memory([&] { inherit(session); });
    session.manager().run(session.now());
}

// Timers are the other thread's: settle() wakes it if one is due sooner than it expects.
void CmServer::bring() {
    Session session(*this);
    for (const CmArrival& a : arrivals_->collect_steered())
        session.manager().receive(session.now(), a.message.source, a.message.destination,
                                  a.message.mad, a.origin);
}

void CmServer::on_death() {
    death_.store(true);
    rendezvous_->wake();
}

void CmServer::inherit(Session& session) {
    if (estate_ == nullptr) return;
    if (death_.exchange(false)) {
        Rollback again([this] { death_.store(true); });
        estate_->inherit(inherited_);
        again.keep();
    }
    for (; !inherited_.empty(); inherited_.pop_back())
        session.manager().bid_farewell(session.now(), inherited_.back());
}

void CmServer::settle(Instant now) {
    // Refusing may cause no new events, so this ends.
    for (const auto& [id, nobody] : unwanted_) manager_->release(now, cm::CommId{id});
    unwanted_.clear();
    send_all();
    wake_if_late();
}

void CmServer::send_all() {
    gsi_->send(outbox_);
    outbox_.clear();
}

void CmServer::wake_if_late() {
    if (manager_->next_wakeup() >= thread_sleeps_until_) return;
    thread_sleeps_until_ = manager_->next_wakeup();
    rendezvous_->wake();
}

void CmServer::send(const Gid& source, const Gid& destination, ByteView mad) {
    if (outbox_.size() == kOutbox) send_all();
    CmDatagram& d = outbox_.emplace_back();
    d.source = source;
    d.destination = destination;
    std::copy(mad.begin(), mad.end(), d.mad.begin());
}

bool CmServer::offer(const Gid& source, const Gid& destination, ByteView mad, cm::Origin origin) {
    CmDatagram d{source, destination, {}};
    std::copy(mad.begin(), mad.end(), d.mad.begin());
    const wire::MadHeader header =
        wire::MadHeader::parse(std::span(d.mad).first<wire::MadHeader::kSize>());
    // Everybody has got such a refusal already, and nobody may start another round.
    const bool refusal = header.attribute == static_cast<std::uint16_t>(wire::CmAttribute::Rej);
    return !(refusal && origin == cm::Origin::Neighbour) && rendezvous_->offer(d);
}

void* CmServer::owner_of(const cm::Event& event, bool of_listener) const {
    const auto& table = of_listener ? listener_owners_ : owners_;
    const auto found = table.find(of_listener ? event.listener.raw : event.connection.raw);
    if (found != table.end()) return found->second;
    return of_listener ? starting_listener_ : nullptr;
}

void CmServer::on_event(const cm::Event& event) {
    const bool request =
        event.type == cm::EventType::ConnectRequest || event.type == cm::EventType::SidrRequest;
    void* owner = owner_of(event, request || event.connection.raw == 0);
    // Before the user hears of it, so that nothing fails afterwards.
    Owners::node_type place;
    if (request) place = place_for(nullptr);
    const bool wanted = owner != nullptr && user_ != nullptr;
    if (wanted) owner = user_->on_cm_event(event, owner);
    if (!request) return;
    if (wanted && owner == nullptr) throw std::bad_alloc();
    place.mapped() = owner;
    enter(wanted ? owners_ : unwanted_, std::move(place), event.connection.raw);
}

template <class Use>
void CmServer::with_qp(Qpn qpn, Use&& use) {
    for (std::uint32_t i = 0; i < process_.shard_count(); ++i) {
        if (process_.shard(i).slot() != slot_of(qpn)) continue;
        Shard::Session session(process_.shard(i));
        if (transport::QueuePair* qp = session.engine().qps().find(qpn)) use(session, *qp);
        return;
    }
}

std::uint64_t CmServer::packets_received(Qpn qpn) {
    std::uint64_t packets = 0;
    with_qp(qpn,
            [&](Shard::Session&, transport::QueuePair& qp) { packets = qp.packets_received(); });
    return packets;
}

bool CmServer::ask_peer(Qpn qpn) {
    bool asked = false;
    with_qp(qpn, [&](Shard::Session& session, transport::QueuePair& qp) {
        asked = session.engine().ask_peer(session.now(), qp);
    });
    return asked;
}

void CmServer::on_silence(Qpn qpn) {
    with_qp(qpn, [](Shard::Session& session, transport::QueuePair& qp) {
        session.engine().give_up_peer(session.now(), qp);
    });
}

CmUser* CmServer::user(std::unique_ptr<CmUser> (*make)()) {
    {
        const std::lock_guard lock(mutex_);
        if (user_ != nullptr) return user_.get();
    }
    std::unique_ptr<CmUser> fresh = make();
    const std::lock_guard lock(mutex_);
    if (user_ == nullptr) user_ = std::move(fresh);
    return user_.get();
}

CmServer::Owners::node_type CmServer::place_for(void* owner) {
    Owners one{{0, owner}};
    return one.extract(one.begin());
}

void CmServer::enter(Owners& owners, Owners::node_type place, std::uint32_t id) {
    place.key() = id;
    owners.insert(std::move(place));
}

Result<PortLease> CmServer::lease_port(wire::PortSpace space, const Gid& address,
                                       std::uint16_t port) {
    return within_memory("rdma_cm", [&] {
        const std::lock_guard lock(mutex_);
        return rendezvous_->lease(space, address, port);
    });
}

void CmServer::end_lease(const PortLease& lease) {
    const std::lock_guard lock(mutex_);
    rendezvous_->end(lease);
}

Result<cm::ListenerId> CmServer::listen(const cm::ListenOptions& options, void* owner) {
    return within_memory("rdma_cm", [&]() -> Result<cm::ListenerId> {
        Owners::node_type place = place_for(owner);
        Session session(*this);
        // Requests that waited for this listener are told of before listen() returns.
        starting_listener_ = owner;
        const Rollback over([this] { starting_listener_ = nullptr; });
        Result<cm::ListenerId> listener = session.manager().listen(session.now(), options);
        if (listener) enter(listener_owners_, std::move(place), listener->raw);
        return listener;
    });
}

void CmServer::unlisten(cm::ListenerId listener) {
    Session session(*this);
    session.manager().unlisten(listener);
    listener_owners_.erase(listener.raw);
}

template <class Ask>
Result<void> CmServer::ask(void* owner, std::optional<cm::CommId>& out, Ask&& ask) {
    return within_memory("rdma_cm", [&]() -> Result<void> {
        Owners::node_type place = place_for(owner);
        Session session(*this);
        const Result<cm::CommId> id = ask(session);
        TRY(id);
        enter(owners_, std::move(place), id->raw);
        out = *id;
        return {};
    });
}

Result<void> CmServer::connect(const cm::ConnectOptions& options, void* owner,
                               std::optional<cm::CommId>& out) {
    return ask(owner, out, [&](Session& s) { return s.manager().connect(s.now(), options); });
}

Result<void> CmServer::sidr_request(const cm::SidrRequestOptions& options, void* owner,
                                    std::optional<cm::CommId>& out) {
    return ask(owner, out, [&](Session& s) { return s.manager().sidr_request(s.now(), options); });
}

void CmServer::taken(cm::CommId id) {
    Session session(*this);
    session.manager().taken(id);
}

Result<void> CmServer::accept(cm::CommId id, const cm::AcceptOptions& options) {
    Session session(*this);
    return session.manager().accept(session.now(), id, options);
}

Result<void> CmServer::sidr_reply(cm::CommId id, const cm::SidrReplyOptions& options) {
    Session session(*this);
    return session.manager().sidr_reply(session.now(), id, options);
}

Result<void> CmServer::reject(cm::CommId id, const cm::RejectOptions& options) {
    Session session(*this);
    return session.manager().reject(session.now(), id, options);
}

Result<void> CmServer::establish(cm::CommId id) {
    Session session(*this);
    return session.manager().establish(session.now(), id);
}

Result<void> CmServer::disconnect(cm::CommId id) {
    Session session(*this);
    return session.manager().disconnect(session.now(), id);
}

void CmServer::release(cm::CommId id) {
    Session session(*this);
    owners_.erase(id.raw);
    session.manager().release(session.now(), id);
}

std::set<Gid> CmServer::local_addresses() {
    std::set<Gid> out;
    for (const host::Interface& interface : process_.host().interfaces())
        out.insert(interface.gids.begin(), interface.gids.end());
    return out;
}

void CmServer::on_interfaces_changed() {
    std::set<Gid> present = local_addresses();
    Session session(*this);
    for (const Gid& before : addresses_)
        if (!present.contains(before)) session.manager().remove_address(before);
    addresses_.swap(present);  // Last: what came before may find no memory, and is called again.
}

void CmServer::on_suspects(const cm::Suspects& peers) {
    Session session(*this);
    session.manager().suspect(session.now(), peers);
    session.manager().run(session.now());
}

CmServer::Census CmServer::census() {
    const std::lock_guard lock(mutex_);
    return {owners_.size(), listener_owners_.size(), manager_->connections(),
            manager_->next_wakeup() != kNever};
}

void CmServer::finish() {
    // Another thread may have died with the lock: do not wait for ever.
    const Instant give_up = process_.host().now() + 10ms;
    while (!mutex_.try_lock())
        if (process_.host().now() > give_up) return;
    const std::lock_guard lock(mutex_, std::adopt_lock);
    const Instant now = process_.host().now();
    for (const auto& [id, owner] : owners_) manager_->release(now, cm::CommId{id});
    owners_.clear();
    listener_owners_.clear();
    settle(now);
}

void CmServer::abandon() {
    rendezvous_->abandon();
}

}  // namespace feroce::process
