#include "gas/node_core.hpp"

#include <cerrno>
#include <cstring>
#include <new>

namespace feroce::gas {

using detail::Control;
using detail::DirectoryEntry;

namespace {

constexpr std::size_t kSegmentAlignment = 64;
constexpr std::size_t kMostMemory = std::size_t{1} << 47;

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
    arrived_.resize(size());
}

Node::Core::~Core() {
    for (auto& set : lanes)
        if (set) set->close();
    if (unregistered != nullptr)
        runtimes.front()->memory().deallocate(unregistered, layout().heap() + options.memory,
                                              kSegmentAlignment);
}

Result<> Node::Core::make_segment() {
    if (options.memory > kMostMemory)
        return Error(ENOMEM, "a node shares at most 2^47 bytes, which pointers can tell apart");
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

std::span<plain<std::uint64_t>> Node::Core::losses() const {
    auto* first = segment().data() + layout().losses();
    return {reinterpret_cast<plain<std::uint64_t>*>(first), size()};
}

std::span<plain<std::uint64_t>> Node::Core::arrivals() const {
    auto* first = segment().data() + layout().arrivals();
    return {reinterpret_cast<plain<std::uint64_t>*>(first), size()};
}

// For a thread, when the directory is complete: the nodes are known, but no connections yet.
void Node::Core::make_lanes(std::size_t thread) {
    const auto buffers =
        segment().subspan(layout().buffers() + thread * Lanes::buffer_bytes(size()));
    Lanes::Setup setup{.self = id(),
                       .thread = static_cast<std::uint16_t>(thread),
                       .lease = options.lease,
                       .global_atomics = global_atomics,
                       .domain = domain ? domain->raw() : nullptr,
                       .lkey = registered ? registered->local().raw().lkey : 0,
                       .inline_bytes = Lanes::kInlineBytes,
                       .nodes = size(),
                       .buffers = buffers.data(),
                       .losses = losses().data(),
                       .on_lost = [this](NodeId node) { on_lost(node); }};
    if (thread == 0) setup.before_flush = [this] { follow_losses(); };
    lanes[thread] = std::make_unique<Lanes>(*loops[thread], setup);
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
                              .pools = there.elements<&Control::heap_pools>().data(),
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

}  // namespace feroce::gas
