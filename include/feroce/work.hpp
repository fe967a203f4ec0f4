// Work: one work request for a send queue, made by a function that names it and refined by others:
//     Work::write(to, from).signal(operation).fence()
// A list of them goes to the device with one doorbell: Connection::post.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "feroce/error.hpp"
#include "feroce/operation.hpp"
#include "feroce/region.hpp"

namespace feroce::rdma {

class Work {
public:
    static Work send(const Regions& from);
    static Work send_imm(const Regions& from, std::uint32_t immediate);
    // Takes back the peer's key on arrival.
    static Work send_invalidate(const Regions& from, std::uint32_t rkey);
    static Work write(const RemoteRegion& to, const Regions& from);
    static Work write_imm(const RemoteRegion& to, const Regions& from, std::uint32_t immediate);
    static Work read(const Regions& to, const RemoteRegion& from);
    // On eight aligned bytes of the peer; the old value arrives in eight local bytes.
    static Work compare_swap(const Regions& old, const RemoteRegion& word, std::uint64_t expected,
                             std::uint64_t desired);
    static Work fetch_add(const Regions& old, const RemoteRegion& word, std::uint64_t add);
    static Work local_invalidate(std::uint32_t rkey);

    // The operation hears of the completion.
    Work& signal(Operation& operation);
    // The operation hears only if it fails, or is flushed. What is neither signalled nor watched
    // fails silently.
    Work& watch(Operation& operation);
    Work& fence();        // Starts after earlier READs and atomics are done.
    Work& solicited();    // Wakes a peer that waits for solicited completions only.
    Work& inline_data();  // The data is copied now and may change afterwards, registered or not.

    // Why it cannot work, found without asking anybody.
    Result<> check() const;
    void prepare(Work* next);  // raw() is valid while this and `next` stay where they are.
    ibv_send_wr& raw() { return wr_; }

private:
    Work(ibv_wr_opcode opcode, const Regions& regions);

    Regions regions_;
    std::uint64_t remote_size_ = ~std::uint64_t{0};
    ibv_send_wr wr_{};
};

}  // namespace feroce::rdma
