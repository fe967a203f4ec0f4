#include "feroce/gas/epochs.hpp"

#include <algorithm>
#include <array>

namespace feroce::gas {

Epochs::Pin Epochs::pin() {
    if (pins_++ == 0) {
        // An old view is safe, but keeps the count from going up.
        seen_ = std::max(seen_, told_->load());
        // Sequentially consistent: seen by others before this thread looks at anything.
        own_->since.store(seen_ + 1);
    }
    return Pin(*this);
}

void Epochs::let_go() {
    if (--pins_ == 0) own_->since.store(0);
}

rdma::Task<Result<>> Epochs::retire(ptr<void> block, std::size_t bytes) {
    retired_.push_back({block, bytes});
    if (++since_collect_ < kBatch) co_return Result<>();
    co_return co_await collect();
}

rdma::Task<Result<bool>> Epochs::all_have_seen(std::uint64_t epoch) {
    constexpr std::size_t kAtOnce = kChainBytes / sizeof(Pinned);
    std::array<Pinned, kAtOnce> pinned;
    for (const Words& node : nodes_)
        for (std::size_t first = 0; first < node.threads.size(); first += kAtOnce) {
            const auto some = node.threads.subspan(first, kAtOnce);
            auto step = lanes_.chain(some.data().node());
            step.read(some, pinned.data());
            if (const auto done = co_await step; !done) co_return done.error();
            const auto behind = [&](const Pinned& thread) {
                const std::uint64_t since = thread.since.load();
                return since != 0 && since != epoch + 1;
            };
            const auto* end = pinned.data() + some.size();
            if (std::any_of(static_cast<const Pinned*>(pinned.data()), end, behind))
                co_return false;
        }
    co_return true;
}

rdma::Task<Result<>> Epochs::advance(std::uint64_t from) {
    const auto found = co_await lanes_.compare_exchange(count_, from, from + 1);
    if (!found) co_return found.error();
    seen_ = std::max(seen_, *found == from ? from + 1 : *found);
    if (*found != from) co_return Result<>();  // Whoever was faster tells the others.
    for (const Words& node : nodes_)
        // A hint: who does not hear it, because it is lost, needs none.
        static_cast<void>(co_await lanes_.write(node.told, from + 1));
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
    // A node that is lost may hold a pin for ever: nothing is freed any more, and nothing fails.
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
        if (!freed) co_return freed;
    }
    co_return Result<>();
}

}  // namespace feroce::gas
