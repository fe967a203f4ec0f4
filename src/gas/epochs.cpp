#include "feroce/gas/epochs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace feroce::gas {

Result<> Epochs::Pin::check() const {
    if (epochs_->lanes_.loop().now() < until_) return {};
    return Error(ESTALE,
                 "this thread was stopped in the middle of an operation for longer than "
                 "its lease: what it had found may be gone");
}

void Epochs::add_node(span<Pinned> threads) {
    nodes_.push_back(
        {threads, Watch(lanes_), std::vector<Thread>(threads.size(), Thread{Watch(lanes_)})});
}

// Sequentially consistent: seen by others before this thread looks at anything.
void Epochs::show(Group group) {
    shown_ = group;
    shown_until_ = lanes_.loop().after(lanes_.lease().time);
    own_->group.store(group.pins == 0 ? 0 : group.number);
}

Epochs::Pin Epochs::pin() {
    const Instant now = lanes_.loop().now();
    // All of its pins are over, as check() tells the holder of one: it hides the younger ones.
    if (shown_.pins != 0 && now >= shown_until_) show(std::exchange(young_, Group()));
    if (shown_.pins == 0) {
        show({.number = ++groups_, .pins = 1});
        return {*this, shown_.number, now + lanes_.lease().time};
    }
    if (young_.pins++ == 0) young_.number = ++groups_;
    return {*this, young_.number, now + lanes_.lease().time};
}

void Epochs::let_go(std::uint64_t group) {
    if (group == young_.number && young_.pins != 0)
        --young_.pins;
    else if (group == shown_.number && --shown_.pins == 0)
        show(std::exchange(young_, Group()));
}

void Epochs::retire(ptr<void> block, std::size_t bytes) {
    retired_.push_back({block, bytes});
    if (++since_collect_ >= kBatch && !collecting_) tasks_.spawn(collect_later());
}

rdma::Task<void> Epochs::collect_later() {
    // What it could not free now is freed by one of the next.
    static_cast<void>(co_await collect());
}

rdma::Task<Result<>> Epochs::look_at(Watched& node) {
    constexpr std::size_t kAtOnce = kChainBytes / sizeof(Pinned);
    std::array<Pinned, kAtOnce> pinned;
    for (std::size_t first = 0; first < node.words.size(); first += kAtOnce) {
        const auto some = node.words.subspan(first, kAtOnce);
        auto step = lanes_.chain(some.data().node());
        step.read(some, pinned.data());
        if (const auto done = co_await step; !done) co_return done.error();
        for (std::size_t i = 0; i < some.size(); ++i) {
            const std::uint64_t group = pinned[i].group.load();
            Thread& thread = node.threads[first + i];
            thread.found = thread.watch.expired(group) ? 0 : group;
        }
    }
    co_return Result<>();
}

// The pins of a lost node cannot be read; they are over when its lease and the grace are.
bool Epochs::may_be_pinned(Watched& node) {
    const NodeId id = node.words.data().node();
    if (lanes_.is_lost(id)) return !node.watch.expired(1);
    // Of the two groups that there can have been then, the younger one has the next number.
    return std::any_of(node.threads.begin(), node.threads.end(), [](const Thread& thread) {
        return thread.seen != 0 && thread.found != 0 && thread.found < thread.seen + 2;
    });
}

rdma::Task<Result<>> Epochs::collecting() {
    if (collecting_) co_return co_await collected_.wait();
    const Collecting collecting(*this);
    since_collect_ = 0;
    // All of them were unlinked before the pins are read.
    auto unlinked = static_cast<std::ptrdiff_t>(retired_.size());
    for (Watched& node : nodes_) {
        const auto looked = co_await look_at(node);
        if (!looked && !lanes_.is_lost(node.words.data().node())) co_return looked;
    }
    for (;;) {
        for (Watched& node : nodes_)
            if (may_be_pinned(node)) co_return Result<>();
        if (const auto freed = co_await free_doomed(); !freed) co_return freed;
        if (unlinked == 0) co_return Result<>();
        doomed_.assign(retired_.begin(), retired_.begin() + unlinked);
        retired_.erase(retired_.begin(), retired_.begin() + std::exchange(unlinked, 0));
        for (Watched& node : nodes_)
            for (Thread& thread : node.threads) thread.seen = thread.found;
    }
}

rdma::Task<Result<>> Epochs::free_doomed() {
    for (std::size_t count = 1; !doomed_.empty(); ++count) {
        // Other tasks of the thread get on between, however many there are.
        if (count % kBatch == 0)
            if (const auto paused = co_await lanes_.loop().yield(); !paused) co_return paused;
        const Retired oldest = doomed_.back();
        doomed_.pop_back();
        const auto freed = co_await allocator_.free(oldest.block, oldest.bytes);
        // The memory of a lost node is gone with it.
        if (!freed && !lanes_.is_lost(oldest.block.node())) co_return freed;
    }
    co_return Result<>();
}

}  // namespace feroce::gas
