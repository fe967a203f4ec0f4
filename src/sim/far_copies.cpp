#include "sim/far_copies.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace feroce::sim {

class FarCopies::Memory final : public mem::FarMemory {
public:
    explicit Memory(FarCopies& copies) : copies_(copies) {}

    std::unique_ptr<mem::Staging> stage(std::uint32_t size) override {
        return mem::heap_staging(size);
    }
    void start(const mem::Copy& copy) override { copies_.start(copy, *this); }
    void close() override { copies_.finish_of(*this); }
    bool lost = false;

private:
    FarCopies& copies_;
};

FarCopies::FarCopies(Scheduler& scheduler, Arena& arena, std::uint64_t seed,
                     std::function<void()> told)
    : scheduler_(scheduler), arena_(arena), random_(seed), told_(std::move(told)) {}

std::shared_ptr<mem::FarMemory> FarCopies::make() {
    return std::make_shared<Memory>(*this);
}

void FarCopies::lose(mem::FarMemory& memory) {
    static_cast<Memory&>(memory).lost = true;
}

// Mostly short, as copies are; now and then the bus is busy.
Duration FarCopies::draw_delay() {
    const std::uint64_t max_us = random_.chance(0.02) ? 500 : 60;
    return std::chrono::microseconds(1 + random_.below(max_us));
}

void FarCopies::start(const mem::Copy& copy, const Memory& memory) {
    const std::uint64_t id = next_id_++;
    pending_.emplace(id, Pending{copy, &memory});
    scheduler_.after(draw_delay(), [this, id] { finish(id); });
}

void FarCopies::finish(std::uint64_t id) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    const auto [copy, memory] = found->second;
    pending_.erase(found);
    const ByteSpan far = arena_.bytes({copy.address - kBase, copy.staging.size()});
    const bool good = !memory->lost;
    if (good && copy.direction == mem::CopyDirection::Gather) {
        std::copy(far.begin(), far.end(), copy.staging.begin());
    } else if (good) {
        std::copy(copy.staging.begin(), copy.staging.end(), far.begin());
    }
    copy.listener->copy_done(copy.token, good);
    told_();
}

void FarCopies::finish_of(const Memory& memory) {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, pending] : pending_)
        if (pending.memory == &memory) ids.push_back(id);
    for (const std::uint64_t id : ids) finish(id);
}

void FarCopies::finish_all() {
    while (!pending_.empty()) finish(pending_.begin()->first);
}

}  // namespace feroce::sim
