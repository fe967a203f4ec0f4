#include "gas/node_core.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

using detail::Control;
using detail::DirectoryEntry;
using detail::Named;
using detail::Names;

namespace {

using NameTable = Guarded<Names>;

constexpr std::size_t kSegmentAlignment = 64;
// While a node waits at a barrier it makes sure that whom it waits for still lives.
constexpr Duration kHeartbeat = std::chrono::milliseconds(100);

std::string name_of(NodeId node) {
    return "node " + std::to_string(static_cast<unsigned>(node));
}

// Why a barrier fails at `self` where the abort word of a node says who is lost.
Error found_lost(std::uint64_t word, NodeId self) {
    const NodeId lost{static_cast<std::uint16_t>(word - 1)};
    if (lost == self)
        return {ESTALE,
                "the others have found this node lost, since it did not answer for some seconds: "
                "it is no longer one of them"};
    return {ECONNRESET, name_of(lost) + " is lost, as another node found"};
}

}  // namespace

Node::Core::Core(NodeOptions node_options) : options(std::move(node_options)) {
    for (std::size_t i = 0; i < options.threads; ++i) {
        runtimes.push_back(options.runtime ? options.runtime()
                                           : std::make_unique<rdma::RealRuntime>());
        loops.push_back(std::make_unique<rdma::Loop>(*runtimes.back(),
                                                     rdma::Loop::Options{.spin = options.spin}));
    }
    completions.resize(options.threads);
    lanes.resize(options.threads);
    allocators.resize(options.threads);
    epochs.resize(options.threads);
}

Node::Core::~Core() {
    for (auto& set : lanes)
        if (set) set->close();
    if (unregistered != nullptr)
        runtimes.front()->memory().deallocate(unregistered, layout().heap() + options.memory,
                                              kSegmentAlignment);
}

Result<> Node::Core::make_segment() {
    const std::size_t bytes = layout().heap() + options.memory;
    if (domain) {
        auto made = rdma::Buffer::create(domain->raw(), runtimes.front()->memory(), bytes,
                                         rdma::Access::Remote);
        if (!made) return made.error();
        registered = *std::move(made);
    } else {
        const auto made = rdma::allocate(runtimes.front()->memory(), bytes, kSegmentAlignment);
        if (!made) return made.error();
        unregistered = *made;
        std::memset(unregistered, 0, bytes);
    }
    if (reinterpret_cast<std::uint64_t>(segment().data()) % kSegmentAlignment != 0)
        return Error(EINVAL, "the runtime's memory is not aligned to cache lines");
    return {};
}

std::span<std::byte> Node::Core::segment() const {
    if (registered) return registered->bytes();
    return {unregistered, layout().heap() + options.memory};
}

Control& Node::Core::control() const {
    return *reinterpret_cast<Control*>(segment().data());
}

std::span<DirectoryEntry> Node::Core::directory() const {
    auto* first = segment().data() + detail::Layout::directory();
    return {reinterpret_cast<DirectoryEntry*>(first), size()};
}

// For a thread, when the directory is complete: who there is, but no connections yet.
void Node::Core::make_lanes(std::size_t thread) {
    const auto buffers = segment().subspan(layout().buffers() + thread * Lanes::kBufferBytes);
    lanes[thread] = std::make_unique<Lanes>(
        *loops[thread], Lanes::Setup{.self = id(),
                                     .thread = static_cast<std::uint16_t>(thread),
                                     .lease = options.lease,
                                     .global_atomics = global_atomics,
                                     .domain = domain ? domain->raw() : nullptr,
                                     .lkey = registered ? registered->local().raw().lkey : 0,
                                     .inline_bytes = Lanes::kInlineBytes,
                                     .buffers = buffers.data()});
    allocators[thread] = std::make_unique<Allocator>(*lanes[thread]);
    for (std::size_t i = 0; i < size(); ++i) {
        const DirectoryEntry& entry = directory()[i];
        const NodeId node{static_cast<std::uint16_t>(i)};
        Lanes::Lane lane;
        lane.rkey = entry.rkey;
        lane.base = entry.base;
        lane.bytes = entry.bytes;
        lanes[thread]->set_lane(node, std::move(lane));
        const std::size_t heap = detail::Layout{size(), entry.threads}.heap();
        const ptr<Control> there(node, entry.base);
        Allocator::Heap words{.begin = ptr<std::byte>(node, entry.base + heap),
                              .bytes = entry.bytes - heap,
                              .next = there.field<&Control::heap_next>(),
                              .pools = there.field<&Control::heap_pools>().as<nic<std::uint64_t>>(),
                              .live = nullptr};
        if (entry.checked != 0) words.live = there.field<&Control::heap_live>();
        allocators[thread]->add_heap(node, words);
    }
    make_epochs(thread);
}

void Node::Core::make_epochs(std::size_t thread) {
    const auto words = [&](std::size_t index) {
        const DirectoryEntry& entry = directory()[index];
        const NodeId node{static_cast<std::uint16_t>(index)};
        const std::size_t offset = detail::Layout{size(), entry.threads}.pins();
        return span<Epochs::Pinned>({node, entry.base + offset}, entry.threads);
    };
    const ptr<Epochs::Pinned> own = words(static_cast<std::size_t>(id()))[thread];
    epochs[thread] = std::make_unique<Epochs>(*lanes[thread], *allocators[thread], own);
    for (std::size_t i = 0; i < size(); ++i) epochs[thread]->add_node(words(i));
}

ptr<Control> Node::Core::control_of(NodeId node) {
    return {node, lane_set(0).lane(node).base};
}

// Dissemination: in round k everybody tells the node 2^k further on. log2(n) rounds, and no word
// that all of them poll.
rdma::Task<Result<>> Node::Core::barrier() {
    const std::uint64_t epoch = ++epoch_;
    const auto own = static_cast<std::size_t>(id());
    for (std::size_t round = 0, step = 1; step < size(); ++round, step *= 2) {
        const NodeId to{static_cast<std::uint16_t>((own + step) % size())};
        const NodeId from{static_cast<std::uint16_t>((own + size() - step) % size())};
        const auto flags = control_of(to).field<&Control::barrier>().as<plain<std::uint64_t>>();
        const auto told = co_await lane_set(0).write(flags[round], epoch);
        // Who has left had heard us: only the acknowledgement was lost.
        if (!told && directory()[static_cast<std::size_t>(to)].left.load() == 0)
            co_return co_await tell_of_loss(to, told.error());
        const auto heard = co_await await_flag(round, from);
        if (!heard) co_return heard;
    }
    co_return Result<>();
}

rdma::Task<Result<>> Node::Core::await_flag(std::size_t round, NodeId from) {
    Backoff backoff(lane_set(0));
    Instant next_heartbeat = loop().after(kHeartbeat);
    while (control().barrier[round].load() < epoch_) {
        if (const std::uint64_t lost = control().abort.load(); lost != 0)
            co_return found_lost(lost, id());
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
        if (loop().now() < next_heartbeat) continue;
        const auto alive = co_await lane_set(0).read(control_of(from).field<&Control::abort>());
        // It may have told us and left meanwhile.
        if (!alive && control().barrier[round].load() < epoch_)
            co_return co_await tell_of_loss(from, alive.error());
        // It waits for nobody any more, and could not tell this node if that is who is lost.
        if (alive && *alive != 0 && control().barrier[round].load() < epoch_)
            co_return found_lost(*alive, id());
        next_heartbeat = loop().after(kHeartbeat);
    }
    co_return Result<>();
}

// After a barrier, before the lanes are closed.
rdma::Task<void> Node::Core::say_goodbye() {
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node{static_cast<std::uint16_t>(i)};
        if (node == id()) continue;
        const ptr<DirectoryEntry> entries(node,
                                          control_of(node).address() + detail::Layout::directory());
        const auto own = entries[static_cast<std::size_t>(id())];
        // Who cannot hear it has left as well.
        static_cast<void>(co_await lane_set(0).write(own.field<&DirectoryEntry::left>(), 1));
    }
}

// Others wait for nodes that live, which wait for us: they must not wait for ever.
rdma::Task<Result<>> Node::Core::tell_of_loss(NodeId lost, Error why) {
    const std::uint64_t word = static_cast<std::uint64_t>(lost) + 1;
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node{static_cast<std::uint16_t>(i)};
        if (node == lost) continue;
        // Who cannot be told has found out by itself, or is lost too.
        static_cast<void>(
            co_await lane_set(0).write(control_of(node).field<&Control::abort>(), word));
    }
    co_return why;
}

ptr<Named> Node::Core::name_at(std::size_t index) {
    return NameTable::content_of(names()).field<&Names::entries>().as<Named>()[index];
}

ptr<NameTable::Block> Node::Core::names() {
    return control_of(NodeId{0}).field<&Control::names>();
}

rdma::Task<Result<>> Node::Core::publish(std::string_view name, std::uint64_t bits,
                                         std::size_t bytes) {
    if (name.empty() || name.size() >= detail::kNameBytes)
        co_return Error(EINVAL, "a name has 1 to 39 characters");
    if (bits == 0) co_return Error(EINVAL, "a null pointer cannot be published");
    NameTable table(lane_set(0));
    Names known;
    auto hold = co_await table.lock(names(), known);
    if (!hold) co_return hold.error();
    std::optional<std::size_t> free;
    for (std::size_t i = 0; i < detail::kNames; ++i) {
        const Named& entry = known.entries[i];
        if (entry.pointer == 0 && !free) free = i;
        if (entry.pointer != 0 && entry.text() == name)
            co_return co_await table.give_up(
                *std::move(hold),
                {EEXIST, "there is an object named " + std::string(name) + " already"});
    }
    if (!free)
        co_return co_await table.give_up(*std::move(hold),
                                         {ENOSPC, "all names are taken: withdraw one"});
    Named entry{.pointer = bits, .object_bytes = bytes};
    std::memcpy(entry.name, name.data(), name.size());
    co_return co_await table.store(*std::move(hold), name_at(*free), entry);
}

rdma::Task<Result<>> Node::Core::withdraw(std::string_view name) {
    NameTable table(lane_set(0));
    Names known;
    auto hold = co_await table.lock(names(), known);
    if (!hold) co_return hold.error();
    for (std::size_t i = 0; i < detail::kNames; ++i) {
        const Named& entry = known.entries[i];
        if (entry.pointer == 0 || entry.text() != name) continue;
        const Named nothing;
        co_return co_await table.store(*std::move(hold), name_at(i), nothing);
    }
    co_return co_await table.give_up(*std::move(hold),
                                     {ENOENT, "there is no object named " + std::string(name)});
}

rdma::Task<Result<std::uint64_t>> Node::Core::find(std::string_view name, std::size_t bytes) {
    const Instant deadline = loop().after(options.patience);
    Backoff backoff(loop(), std::chrono::milliseconds(1));
    NameTable table(lane_set(0));
    Names known;
    for (;;) {
        const auto read = co_await table.read(names(), known);
        if (!read) co_return read.error();
        for (const Named& entry : known.entries) {
            if (entry.pointer == 0 || entry.text() != name) continue;
            if (entry.object_bytes == bytes) co_return entry.pointer;
            co_return Error(EINVAL, std::string(name) + " is an object of " +
                                        std::to_string(entry.object_bytes) + " bytes, not " +
                                        std::to_string(bytes) + ": its type is another one");
        }
        if (loop().now() >= deadline)
            co_return Error(ETIMEDOUT, "nobody has published " + std::string(name));
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

}  // namespace feroce::gas
