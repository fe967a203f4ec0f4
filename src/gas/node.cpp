#include "feroce/gas/node.hpp"

#include <cerrno>
#include <utility>

#include "gas/joining.hpp"
#include "gas/node_core.hpp"

namespace feroce::gas {

Result<Node> Node::join() {
    const auto placement = placement_from_environment();
    if (!placement) return Error(placement.error());
    NodeOptions options;
    options.placement = *placement;
    return join(std::move(options));
}

Result<Node> Node::join(NodeOptions options) {
    if (options.threads == 0) return Error(EINVAL, "a node has at least one thread");
    auto core = std::make_unique<Core>(std::move(options));
    {
        Joining joining(*core);
        if (const Result<> joined = joining.run(); !joined) return joined.error();
    }
    return Node(std::move(core));
}

Node::Node(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(Node&&) noexcept = default;
Node::~Node() = default;

NodeId Node::id() const {
    return core_->id();
}

std::uint16_t Node::size() const {
    return core_->options.placement.size;
}

Lanes& Node::lanes(std::size_t thread) {
    return core_->lane_set(thread);
}

Allocator& Node::allocator(std::size_t thread) {
    return *core_->allocators[thread];
}

Epochs& Node::epochs(std::size_t thread) {
    return *core_->epochs[thread];
}

std::uint64_t Node::blocks_in_use() const {
    return core_->control().heap_live.load();
}

Result<std::uint64_t> Node::tell(NodeId from, std::uint64_t bits) {
    if (id() == from) core_->control().broadcast.store(bits);
    if (const Result<> told = barrier(); !told) return told.error();
    return read(core_->control_of(from).field<&detail::Control::broadcast>());
}

Result<> Node::publish_root(std::string_view name, std::uint64_t bits, std::size_t object_bytes) {
    return loop().run(core_->publish(name, bits, object_bytes));
}

Result<> Node::withdraw(std::string_view name) {
    return loop().run(core_->withdraw(name));
}

Result<std::uint64_t> Node::find_root(std::string_view name, std::size_t object_bytes) {
    return loop().run(core_->find(name, object_bytes));
}

Result<> Node::barrier() {
    return loop().run(core_->barrier());
}

Result<> Node::leave() {
    Result<> all = barrier();
    if (all) loop().run(core_->say_goodbye());
    for (auto& set : core_->lanes) set->close();
    core_->accepted.clear();
    return all;
}

}  // namespace feroce::gas
