#include "feroce/gas/node.hpp"

#include <cerrno>
#include <system_error>
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
    std::unique_ptr<Core> core;
    try {
        core = std::make_unique<Core>(std::move(options));
    } catch (const std::system_error& thrown) {  // There is no descriptor for a loop.
        return Error(thrown.code().value(), thrown.what());
    }
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

Result<> Node::publish_root(std::string_view name, std::uint64_t bits, std::size_t object_bytes) {
    return loop().run(core_->publish(name, bits, object_bytes));
}

Result<> Node::withdraw(std::string_view name) {
    return loop().run(core_->withdraw(name));
}

Result<std::uint64_t> Node::find_root(std::string_view name, std::size_t object_bytes,
                                      bool may_make) {
    return loop().run(core_->find(name, object_bytes, may_make));
}

Result<ptr<void>> Node::find_memory(std::string_view name, std::size_t bytes) {
    const Result<std::uint64_t> bits = find_root(name, bytes, false);
    if (!bits) return bits.error();
    return ptr<void>::from_bits(*bits);
}

Result<ptr<void>> Node::share_memory(std::string_view name, std::size_t bytes) {
    ptr<void> made;  // Null: none yet.
    for (;;) {
        const Result<std::uint64_t> found = find_root(name, bytes, true);
        if (made && (!found || *found != 0))  // Another one got the name first.
            static_cast<void>(loop().run(allocator().free(made, bytes)));
        if (!found) return found.error();
        if (*found != 0) return ptr<void>::from_bits(*found);
        if (!made) {
            const auto memory = loop().run(allocator().allocate_cleared(id(), bytes));
            if (!memory) return memory.error();
            made = *memory;
        }
        const Result<> done = publish_root(name, made.bits(), bytes);
        if (done) return made;
        if (done.error().code == EEXIST) continue;
        static_cast<void>(loop().run(allocator().free(made, bytes)));
        return done.error();
    }
}

Result<> Node::meet() {
    return loop().run(core_->meet());
}

Result<> Node::barrier() {
    if (Result<> met = meet(); !met) return met;
    return core_->report_losses();
}

Result<std::uint64_t> Node::tell(NodeId from, std::uint64_t bits) {
    if (id() == from) core_->control().broadcast.store(bits);
    if (const Result<> met = meet(); !met) return met.error();
    return read(core_->control_of(from).field<&detail::Control::broadcast>());
}

Result<> Node::leave() {
    const Result<> met = meet();
    if (met) loop().run(core_->say_goodbye());
    Result<> all = met ? core_->report_losses() : met;
    for (auto& set : core_->lanes) set->close();
    core_->accepted.clear();
    return all;
}

}  // namespace feroce::gas
