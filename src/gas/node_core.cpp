#include "gas/node_core.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

using detail::Control;
using detail::DirectoryEntry;
using detail::Root;

namespace {

using Name = std::array<char, detail::kRootName>;

constexpr std::size_t kSegmentAlignment = 64;
// While a node waits at a barrier it makes sure that whom it waits for still lives.
constexpr Duration kHeartbeat = std::chrono::milliseconds(100);

std::string name_of(NodeId node) {
    return "node " + std::to_string(static_cast<unsigned>(node));
}

// FNV-1a; never 0, which is a free entry.
std::uint64_t hash_of(std::string_view name) {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
    return hash == 0 ? 1 : hash;
}

bool has_name(const Root& root, std::string_view name) {
    return root.name_hash.load() == hash_of(name) && root.pointer.load() != 0 &&
           name == std::string_view(root.name, ::strnlen(root.name, detail::kRootName));
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
        return Epochs::Words{span<Epochs::Pinned>({node, entry.base + offset}, entry.threads),
                             control_of(node).field<&Control::epoch_told>()};
    };
    const auto count = control_of(NodeId{0}).field<&Control::epoch>();
    epochs[thread] = std::make_unique<Epochs>(*lanes[thread], *allocators[thread], count,
                                              words(static_cast<std::size_t>(id())), thread);
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
            co_return Error(ECONNRESET, name_of(NodeId{static_cast<std::uint16_t>(lost - 1)}) +
                                            " is lost, as another node found");
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
        if (loop().now() < next_heartbeat) continue;
        const auto alive = co_await lane_set(0).read(control_of(from).field<&Control::abort>());
        // It may have told us and left meanwhile.
        if (!alive && control().barrier[round].load() < epoch_)
            co_return co_await tell_of_loss(from, alive.error());
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

rdma::Task<Result<const Root*>> Node::Core::read_roots() {
    if (id() == NodeId{0}) co_return static_cast<const Root*>(control().roots);
    auto step = lane_set(0).chain(NodeId{0});
    const auto roots = control_of(NodeId{0}).field<&Control::roots>().as<Root>();
    step.read(span<Root>(roots, detail::kRoots), static_cast<Root*>(control().scratch));
    if (const auto done = co_await step; !done) co_return done.error();
    co_return static_cast<const Root*>(control().scratch);
}

rdma::Task<Result<>> Node::Core::publish(std::string_view name, std::uint64_t bits,
                                         std::size_t bytes) {
    if (name.empty() || name.size() >= detail::kRootName)
        co_return Error(EINVAL, "a name has 1 to 39 characters");
    const auto roots = control_of(NodeId{0}).field<&Control::roots>().as<Root>();
    for (std::size_t i = 0; i < detail::kRoots; ++i) {
        // Whoever has the entry with the hash has the name.
        const auto found = co_await lane_set(0).compare_exchange(roots[i].field<&Root::name_hash>(),
                                                                 0, hash_of(name));
        if (!found) co_return found.error();
        if (*found == hash_of(name))
            co_return Error(EEXIST, "there is an object named " + std::string(name) + " already");
        if (*found != 0) continue;
        const std::uint64_t object_bytes = bytes;
        Name text{};
        std::memcpy(text.data(), name.data(), name.size());
        auto step = lane_set(0).chain(NodeId{0});
        step.write(roots[i].field<&Root::object_bytes>(), object_bytes);
        step.write(roots[i].field<&Root::name>().as<Name>(), text);
        step.write(roots[i].field<&Root::pointer>(), bits);  // Last: who sees it sees the rest.
        co_return co_await step;
    }
    co_return Error(ENOSPC, "all names are taken");
}

rdma::Task<Result<std::uint64_t>> Node::Core::find(std::string_view name, std::size_t bytes) {
    const Instant deadline = loop().after(options.patience);
    Backoff backoff(loop(), std::chrono::milliseconds(1));
    for (;;) {
        const auto roots = co_await read_roots();
        if (!roots) co_return roots.error();
        for (const Root* root = *roots; root != *roots + detail::kRoots; ++root) {
            if (!has_name(*root, name)) continue;
            if (root->object_bytes == bytes) co_return root->pointer.load();
            co_return Error(EINVAL, std::string(name) + " is an object of " +
                                        std::to_string(root->object_bytes) + " bytes, not " +
                                        std::to_string(bytes) + ": its type is another one");
        }
        if (loop().now() >= deadline)
            co_return Error(ETIMEDOUT, "nobody has published " + std::string(name));
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

}  // namespace feroce::gas
