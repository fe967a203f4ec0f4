// FarCopies: what moves the bytes of one node's far memory, as a GPU's copy engine does: after a
// while that differs from copy to copy, so that copies overtake each other. The bytes are the
// node's arena, under addresses that are mapped nowhere: whoever touches them directly is found
// out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/random.hpp"
#include "mem/far_memory.hpp"
#include "sim/arena.hpp"
#include "sim/scheduler.hpp"

namespace feroce::sim {

class FarCopies {
public:
    // `told` is called after a copy has told its listener.
    FarCopies(Scheduler& scheduler, Arena& arena, std::uint64_t seed, std::function<void()> told);

    static void* address(std::uint64_t offset) { return reinterpret_cast<void*>(kBase + offset); }
    std::shared_ptr<mem::FarMemory> make();
    static void lose(mem::FarMemory& memory);  // As if the program had freed it: copies fail.
    // Whoever waits for all copies to be over has done so.
    void finish_all();

private:
    static constexpr std::uint64_t kBase = std::uint64_t{1} << 46;
    class Memory;
    struct Pending {
        mem::Copy copy;
        const Memory* memory;
    };
    void start(const mem::Copy& copy, const Memory& memory);
    void finish(std::uint64_t id);
    void finish_of(const Memory& memory);
    Duration draw_delay();

    Scheduler& scheduler_;
    Arena& arena_;
    Prng random_;
    std::function<void()> told_;
    std::uint64_t next_id_ = 0;
    std::map<std::uint64_t, Pending> pending_;
};

}  // namespace feroce::sim
