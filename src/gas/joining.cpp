#include "gas/joining.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "feroce/gas/sync/mutex.hpp"
#include "feroce/transfer.hpp"
#include "feroce/when_all.hpp"
#include "gas/seed.hpp"

namespace feroce::gas {

using detail::DirectoryEntry;

namespace {

// Whether what a device does atomically is atomic for the CPUs of its machine too.
bool atomics_are_global(ibv_context* device) {
    ibv_device_attr_ex attributes{};
    if (ibv_query_device_ex(device, nullptr, &attributes) != 0) return false;
    if (attributes.orig_attr.atomic_cap == IBV_ATOMIC_GLOB) return true;
    const ibv_pci_atomic_caps& by_bus = attributes.pci_atomic_caps;
    return (by_bus.fetch_add & by_bus.compare_swap & IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP) != 0;
}

constexpr std::uint64_t kMagic = 0x3530'5341'4745'4346;  // Changes with the protocol.

struct Hello {
    enum Kind : std::uint16_t { kVisit, kLane };
    std::uint64_t magic = kMagic;
    std::uint16_t kind = kVisit;
    std::uint16_t rank = 0;
    std::uint16_t size = 0;
    std::uint16_t thread = 0;
    std::uint64_t process = 0;  // Another one for each: a process that comes again is known by it.
};

struct Welcome {
    std::uint64_t magic = kMagic;
    rdma::RemoteRegion directory;
};

struct Refusal {
    enum Reason : std::uint64_t { kNone, kStranger, kOtherSize, kRankTaken };
    std::uint64_t magic = kMagic;
    std::uint64_t reason = kNone;
};

const char* words_of(std::uint64_t reason) {
    switch (reason) {
        case Refusal::kOtherSize:
            return "it belongs to a cluster of another size; all nodes must be given the same";
        case Refusal::kRankTaken:
            return "another node has this rank already; every node needs its own";
        default:
            return "what listens there is no node of this cluster, or of another version";
    }
}

// A refusal in our words says that trying again is of no use.
std::optional<Error> final_refusal(const Error& error) {
    Refusal refusal{};
    if (error.reject_data.size() < sizeof refusal) return std::nullopt;
    std::memcpy(&refusal, error.reject_data.data(), sizeof refusal);
    if (refusal.magic != kMagic) return std::nullopt;
    return Error(EPERM, std::string("the first node refuses: ") + words_of(refusal.reason));
}

// A waiting queue pair needs no queues.
rdma::ConnectionOptions passive_options(Node::Core& core) {
    rdma::ConnectionOptions options;
    options.domain = core.domain->raw();
    options.send_depth = options.recv_depth = 1;
    options.sge = 1;
    // The connection manager repeats what was lost after seconds.
    options.timeout = core.options.patience;
    return options;
}

constexpr std::uint32_t kPassiveEntries = 4;  // With what a connection adds for itself.
constexpr std::uint32_t kLaneEntries = Lanes::kWorkRequests + 3;

}  // namespace

Joining::Joining(Node::Core& core)
    : core_(core),
      deadline_(core.loop().after(core.options.patience)),
      changed_(core.loop()),
      visitors_(core.size()),
      tasks_(core.loop()) {}

void Joining::fail(const Error& error) {
    if (!failure_) failure_ = error;
    changed_.notify_all();
}

bool Joining::connects_to(std::size_t node) const {
    return node != static_cast<std::size_t>(core_.id()) || !core_.global_atomics;
}

Result<> Joining::run() {
    const Result<> met = core_.loop().run(meet().until(deadline_));
    if (!met) return met.error().code == ETIMEDOUT ? who_is_missing() : met;
    if (Result<> made = make_completions(); !made) return made;
    for (std::size_t i = 0; i < core_.options.threads; ++i) core_.make_lanes(i);
    if (core_.size() == 1 && core_.global_atomics) return {};
    connecting_ = true;
    answer_lanes();
    // Loops of other threads are driven here until they are handed over.
    std::vector<rdma::LoopTask> parts;
    for (std::size_t i = 0; i < core_.options.threads; ++i)
        parts.push_back({*core_.loops[i], connect_thread(i).until(deadline_)});
    parts.push_back({core_.loop(), await_lanes().until(deadline_)});
    return rdma::when_all(std::move(parts));
}

rdma::Task<Result<>> Joining::meet() {
    if (core_.options.placement.seed.empty()) {  // A cluster of one, without a device.
        if (const auto made = core_.make_segment(); !made) co_return made;
        core_.directory()[0] = own_entry();
        co_return Result<>();
    }
    if (core_.id() == NodeId{0}) co_return co_await host();
    co_return co_await visit();
}

Result<> Joining::prepare(const rdma::Address& local) {
    auto device = rdma::Device::open(local);
    if (!device) return device.error();
    core_.device = *std::move(device);
    auto domain = rdma::ProtectionDomain::create(core_.device->raw());
    if (!domain) return domain.error();
    core_.domain = *std::move(domain);
    core_.global_atomics =
        core_.options.trust_global_atomics && atomics_are_global(core_.device->raw());
    if (auto made = core_.make_segment(); !made) return made;
    auto listener = rdma::Listener::listen(core_.loop(), local, 1024);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    tasks_.spawn(answer_all());
    return {};
}

DirectoryEntry Joining::own_entry() const {
    DirectoryEntry entry;
    entry.base = reinterpret_cast<std::uint64_t>(core_.segment().data());
    entry.bytes = core_.segment().size();
    entry.rkey = core_.registered ? core_.registered->remote().rkey : 0;
    entry.threads = core_.options.threads;
    entry.loopback = core_.global_atomics ? 0 : 1;
    entry.checked = core_.options.check_memory ? 1 : 0;
    if (listener_) entry.set_address(listener_->address().text());
    entry.ready = plain<std::uint64_t>(1);
    return entry;
}

bool Joining::directory_complete() const {
    const auto all = core_.directory();
    return std::all_of(all.begin(), all.end(),
                       [](const DirectoryEntry& entry) { return entry.ready.load() != 0; });
}

rdma::Task<Result<>> Joining::host() {
    const auto address = seed_address(core_.options.placement);
    if (!address) co_return address.error();
    if (const auto ready = prepare(*address); !ready) co_return ready;
    core_.directory()[0] = own_entry();
    Backoff backoff(core_.loop(), std::chrono::milliseconds(1));
    while (!directory_complete() && !failure_)
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    if (failure_) co_return *failure_;
    co_return Result<>();
}

rdma::Task<Result<>> Joining::visit() {
    const auto address = co_await find_seed();
    if (!address) co_return address.error();
    std::optional<rdma::Address> local;
    {
        // Which of our addresses leads there.
        const auto way = co_await rdma::Connection::resolve(core_.loop(), *address);
        if (!way) co_return way.error();
        local = way->local().with_port(0);
    }
    if (const auto ready = prepare(*local); !ready) co_return ready;
    auto seed = co_await reach_seed(*address);
    if (!seed) co_return seed.error();
    co_return co_await exchange_directory(*seed);
}

// A name may be known only when its machine is up, as those of pods are.
rdma::Task<Result<rdma::Address>> Joining::find_seed() {
    Backoff backoff(core_.loop(), std::chrono::milliseconds(200));
    for (;;) {
        auto address = seed_address(core_.options.placement);
        if (address || core_.loop().now() >= deadline_) co_return address;
        if (const auto paused = co_await backoff.pause(); !paused) co_return address;
    }
}

rdma::Task<Result<rdma::Connection>> Joining::reach_seed(rdma::Address address) {
    const Placement& placement = core_.options.placement;
    rdma::ConnectionOptions options;
    options.domain = core_.domain->raw();
    const Hello hello{.kind = Hello::kVisit,
                      .rank = placement.rank,
                      .size = placement.size,
                      .process = core_.runtimes.front()->random()};
    Backoff backoff(core_.loop(), std::chrono::milliseconds(20));
    for (;;) {  // It may not be up yet. The deadline of meet() ends this.
        auto made = co_await rdma::Connection::connect(core_.loop(), address, options,
                                                       rdma::PrivateData::of(hello));
        if (made) co_return made;
        if (const auto refused = final_refusal(made.error())) co_return *refused;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

rdma::Task<Result<>> Joining::exchange_directory(rdma::Connection& seed) {
    const auto welcome = seed.peer_data().as<Welcome>();
    const std::size_t bytes = core_.size() * sizeof(DirectoryEntry);
    if (welcome.magic != kMagic || welcome.directory.size != bytes)
        co_return Error(EPROTO, words_of(Refusal::kStranger));
    const auto own = static_cast<std::size_t>(core_.id());
    const auto local = [&](std::size_t offset, std::size_t count) {
        return core_.registered->local(detail::Layout::directory() + offset,
                                       static_cast<std::uint32_t>(count));
    };
    DirectoryEntry& entry = core_.directory()[own];
    entry = own_entry();
    // One WRITE: node 0 takes `ready`, but others read the entry only when all are.
    const std::size_t at = own * sizeof entry;
    rdma::Work steps[] = {
        rdma::Work::write(welcome.directory.subregion(at + 8, sizeof entry - 8),
                          local(at + 8, sizeof entry - 8)),
        rdma::Work::write(welcome.directory.subregion(at, 8), local(at, 8)),
    };
    if (const auto written = co_await seed.batch(steps); !written) co_return written;
    Backoff backoff(core_.loop(), std::chrono::milliseconds(1));
    for (;;) {
        const auto read = co_await seed.read(local(0, bytes), welcome.directory);
        if (!read) co_return read;
        if (directory_complete()) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    }
}

rdma::Task<void> Joining::answer_all() {
    for (;;) {
        auto request = co_await listener_->next();
        if (!request) co_return fail(request.error());
        const auto hello = request->peer_data().as<Hello>();
        Refusal refusal;
        if (hello.magic != kMagic || hello.rank >= core_.size())
            refusal.reason = Refusal::kStranger;
        else if (hello.size != core_.size())
            refusal.reason = Refusal::kOtherSize;
        else if (hello.kind == Hello::kVisit && !may_come(hello.rank, hello.process))
            refusal.reason = Refusal::kRankTaken;
        if (refusal.reason != Refusal::kNone)
            std::move(*request).reject(rdma::PrivateData::of(refusal));
        else if (hello.kind == Hello::kVisit)
            tasks_.spawn(welcome(*std::move(request), hello.rank));
        else if (connecting_)
            tasks_.spawn(accept_lane(*std::move(request)));
        else
            early_.push_back(*std::move(request));
    }
}

// One process a rank, from the moment it comes. The same one comes again if it missed its answer,
// and another may if the first was gone before it had written its entry.
bool Joining::may_come(std::uint16_t rank, std::uint64_t process) {
    if (rank == 0 || core_.directory()[rank].ready.load() != 0) return false;
    Visitor& visitor = visitors_[rank];
    const bool gone = visitor.connection && !visitor.connection->is_open();
    if (visitor.process && *visitor.process != process && !gone) return false;
    visitor.process = process;
    return true;
}

rdma::Task<void> Joining::welcome(rdma::ConnectionRequest request, std::uint16_t rank) {
    const std::size_t bytes = core_.size() * sizeof(DirectoryEntry);
    const Welcome words{
        .directory = core_.registered->remote().subregion(detail::Layout::directory(), bytes)};
    auto made = co_await std::move(request).accept(core_.loop(), passive_options(core_),
                                                   rdma::PrivateData::of(words));
    if (made) visitors_[rank].connection = *std::move(made);
}

void Joining::answer_lanes() {
    for (rdma::ConnectionRequest& request : early_) tasks_.spawn(accept_lane(std::move(request)));
    early_.clear();
}

rdma::Task<void> Joining::accept_lane(rdma::ConnectionRequest request) {
    const NodeId from{request.peer_data().as<Hello>().rank};
    rdma::ConnectionOptions options = passive_options(core_);
    options.completions = &*core_.completions.front();
    auto made = co_await std::move(request).accept(core_.loop(), options);
    if (!made) co_return fail(made.error());
    core_.accepted.push_back({from, *std::move(made)});
    changed_.notify_all();
}

std::size_t Joining::expected_lanes() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < core_.size(); ++i) {
        const DirectoryEntry& entry = core_.directory()[i];
        if (i != static_cast<std::size_t>(core_.id()) || entry.loopback != 0)
            count += entry.threads;
    }
    return count;
}

rdma::Task<Result<>> Joining::await_lanes() {
    while (core_.accepted.size() < expected_lanes() && !failure_) {
        const auto news = co_await changed_.wait();
        if (!news) co_return Error(ETIMEDOUT, "not all nodes have connected to this one in time");
    }
    if (failure_) co_return *failure_;
    co_return Result<>();
}

Result<> Joining::make_completions() {
    if (!core_.device) return {};
    for (std::size_t i = 0; i < core_.options.threads; ++i) {
        std::size_t entries = core_.size() * kLaneEntries;
        if (i == 0) entries += expected_lanes() * kPassiveEntries;
        auto made = rdma::CompletionQueue::create(*core_.loops[i], core_.device->raw(),
                                                  static_cast<std::uint32_t>(entries));
        if (!made) return made.error();
        core_.completions[i] = *std::move(made);
    }
    return {};
}

rdma::Task<Result<>> Joining::connect_thread(std::size_t thread) {
    rdma::TaskGroup group(*core_.loops[thread]);
    for (std::size_t i = 0; i < core_.size(); ++i)
        if (connects_to(i))
            group.spawn(connect_lane(thread, NodeId{static_cast<std::uint16_t>(i)}));
    if (const auto all = co_await group.join(); !all) co_return all;
    for (std::size_t i = 0; i < core_.size(); ++i) {
        const Lanes::Lane& lane = core_.lanes[thread]->lane(NodeId{static_cast<std::uint16_t>(i)});
        if (lane.lost) {
            fail(*lane.lost);
            co_return *lane.lost;
        }
    }
    co_return Result<>();
}

rdma::Task<void> Joining::connect_lane(std::size_t thread, NodeId node) {
    const DirectoryEntry& entry = core_.directory()[static_cast<std::size_t>(node)];
    const rdma::Address address(std::string_view(entry.address));
    const Hello hello{.kind = Hello::kLane,
                      .rank = core_.options.placement.rank,
                      .size = core_.options.placement.size,
                      .thread = static_cast<std::uint16_t>(thread)};
    rdma::ConnectionOptions options;
    options.domain = core_.domain->raw();
    options.completions = &*core_.completions[thread];
    options.send_depth = Lanes::kWorkRequests;
    options.recv_depth = 1;
    options.sge = 1;
    options.inline_bytes = Lanes::kInlineBytes;
    options.from = listener_->address().with_port(0);
    options.timeout = core_.options.patience;
    options.ack_timeout = core_.options.silence / (1 + options.retry_count);
    auto made = co_await rdma::Connection::connect(*core_.loops[thread], address, options,
                                                   rdma::PrivateData::of(hello));
    Lanes::Lane& lane = core_.lanes[thread]->lane(node);
    if (made)
        lane.connection = *std::move(made);
    else
        lane.lost = made.error();
}

Error Joining::who_is_missing() const {
    if (core_.id() != NodeId{0} || !core_.registered)
        return {ETIMEDOUT, "the cluster did not come together in time: is the first node up at " +
                               core_.options.placement.seed + ", and are all others started?"};
    std::string names;
    for (std::size_t i = 0; i < core_.size(); ++i)
        if (core_.directory()[i].ready.load() == 0)
            names += (names.empty() ? "" : ", ") + std::to_string(i);
    return {ETIMEDOUT,
            "the cluster did not come together in time: these nodes have not come: " + names};
}

}  // namespace feroce::gas
