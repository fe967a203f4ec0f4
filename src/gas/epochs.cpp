#include "feroce/gas/epochs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

namespace feroce::gas {
namespace {

constexpr unsigned kEpochShift = 32;

}  // namespace

Result<> Epochs::Pin::check() const {
    if (epochs_->lanes_.loop().now() < until_) return {};
    return Error(ESTALE,
                 "this thread was stopped in the middle of an operation for longer than "
                 "its lease: what it had found may be gone");
}

void Epochs::add_node(const Words& words) {
    nodes_.push_back(
        {words, Watch(lanes_), std::vector<Watch>(words.threads.size(), Watch(lanes_))});
}

// Sequentially consistent: seen by others before this thread looks at anything.
void Epochs::show(const Group& group) {
    if (++turns_ == 0) ++turns_;  // So that no pin is 0.
    own_->since.store(group.pins == 0 ? 0 : (group.epoch + 1) << kEpochShift | turns_);
}

Epochs::Pin Epochs::pin() {
    const Instant until = lanes_.loop().after(lanes_.lease().time);
    Group& group = shown_.pins == 0 ? shown_ : young_;
    if (group.pins++ == 0) {
        // An old view is safe, but keeps the count from going up.
        seen_ = std::max(seen_, told_->load());
        group.number = ++groups_;
        group.epoch = seen_;
        if (&group == &shown_) show(group);
    }
    return {*this, group.number, until};
}

void Epochs::let_go(std::uint64_t group) {
    if (group == young_.number) {
        --young_.pins;
    } else if (--shown_.pins == 0) {
        shown_ = std::exchange(young_, Group());
        show(shown_);
    }
}

rdma::Task<Result<>> Epochs::retire(ptr<void> block, std::size_t bytes) {
    retired_.push_back({block, bytes});
    if (++since_collect_ < kBatch) co_return Result<>();
    co_return co_await collect();
}

rdma::Task<Result<bool>> Epochs::all_have_seen(std::uint64_t epoch) {
    for (Watched& node : nodes_) {
        const auto seen = co_await have_seen(node, epoch);
        // A lost node's pins cannot be read. What it had under way is over when the time is.
        const bool lost = lanes_.lane(node.words.told.node()).lost.has_value();
        const bool gone = lost && node.node.expired(1);
        if (!gone && (!seen || !*seen)) co_return seen;
    }
    co_return true;
}

rdma::Task<Result<bool>> Epochs::have_seen(Watched& node, std::uint64_t epoch) {
    constexpr std::size_t kAtOnce = kChainBytes / sizeof(Pinned);
    std::array<Pinned, kAtOnce> pinned;
    bool all = true;
    const span<Pinned>& threads = node.words.threads;
    for (std::size_t first = 0; first < threads.size(); first += kAtOnce) {
        const auto some = threads.subspan(first, kAtOnce);
        auto step = lanes_.chain(some.data().node());
        step.read(some, pinned.data());
        if (const auto done = co_await step; !done) co_return done.error();
        for (std::size_t i = 0; i < some.size(); ++i) {
            const std::uint64_t since = pinned[i].since.load();
            const bool behind =
                since != 0 && since >> kEpochShift != static_cast<std::uint32_t>(epoch + 1);
            const bool expired = node.threads[first + i].expired(since);
            all = all && (!behind || expired);
        }
    }
    co_return all;
}

rdma::Task<Result<>> Epochs::advance(std::uint64_t from) {
    const auto found = co_await lanes_.compare_exchange(count_, from, from + 1);
    if (!found) co_return found.error();
    seen_ = std::max(seen_, *found == from ? from + 1 : *found);
    if (*found != from) co_return Result<>();  // Whoever was faster tells the others.
    for (const Watched& node : nodes_)
        // A hint: who does not hear it, because it is lost, needs none.
        static_cast<void>(co_await lanes_.write(node.words.told, from + 1));
    co_return Result<>();
}

rdma::Task<Result<>> Epochs::collect() {
    since_collect_ = 0;
    const auto count = co_await lanes_.read(count_);
    if (!count) co_return count.error();
    seen_ = std::max(seen_, *count);
    // All of them were unlinked before the count was read.
    for (Retired& retired : retired_)
        if (retired.epoch == kUnknown) retired.epoch = *count;
    const auto seen_by_all = co_await all_have_seen(*count);
    // A node that was lost just now may hold a pin: nothing is freed yet, and nothing fails.
    if (seen_by_all && *seen_by_all) {
        const auto advanced = co_await advance(*count);
        if (!advanced) co_return advanced;
    }
    for (std::size_t i = 0; i < retired_.size();) {
        const Retired oldest = retired_[i];
        if (oldest.epoch == kUnknown || oldest.epoch + 2 > seen_) {
            ++i;
            continue;
        }
        retired_[i] = retired_.back();
        retired_.pop_back();
        const auto freed = co_await allocator_.free(oldest.block, oldest.bytes);
        // The memory of a lost node is gone with it.
        if (!freed && !lanes_.lane(oldest.block.node()).lost) co_return freed;
    }
    co_return Result<>();
}

}  // namespace feroce::gas
