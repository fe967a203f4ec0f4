// How far an id has come, and which call is allowed when: one table, asked once at the entry of
// each call. A call that moves the id on does so there, atomically, so that of two threads one is
// refused; it goes back if the call then fails.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace feroce::rdmacm {

enum class Stage : std::uint8_t {
    Idle,
    Bound,     // Has a local address.
    Resolved,  // Knows the peer's address and has a device.
    Routed,    // Knows the path.
    Listening,
    Asked,      // Active: the request is on its way.
    Answered,   // Active: the peer has accepted; queue pair and rdma_establish are to follow.
    Requested,  // Passive: a request that is neither accepted nor refused.
    Accepted,   // Passive: the peer has not confirmed yet.
    Connected,
    Over,  // Ended, refused, or asked to end; or a datagram exchange that was answered.
    Count
};

enum class Call : std::uint8_t {
    Bind,
    ResolveAddress,
    ResolveRoute,
    Listen,
    GetRequest,
    Connect,
    Accept,
    Reject,
    Establish,
    Notify,
    Disconnect,
    Join,
    ConnectQueuePair,  // rdma_init_qp_attr for RTR and RTS.
    SetFamilyOnly,     // RDMA_OPTION_ID_AFONLY.
    Count
};

// What the table says of a call in a stage: 0, kNoEffect or an errno. The errnos are the kernel's.
inline constexpr int kNoEffect = -1;  // The call succeeds and nothing happens.

namespace detail {

inline constexpr int kBad = EINVAL;
inline constexpr int kOff = kNoEffect;
inline constexpr int kIs = EISCONN;

using Row = std::array<int, static_cast<std::size_t>(Stage::Count)>;

// clang-format off
inline constexpr std::array<Row, static_cast<std::size_t>(Call::Count)> kTable{{
    //         Idle  Bound Resol Route Liste Asked Answe Reque Accep Conne Over
    /*Bind  */ {0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad},
    /*Addr  */ {0,    0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad},
    /*Route */ {kBad, kBad, 0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad},
    /*Listen*/ {0,    0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad},
    /*GetReq*/ {kBad, kBad, kBad, kBad, 0,    kBad, kBad, kBad, kBad, kBad, kBad},
    /*Connec*/ {kBad, kBad, kBad, 0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad},
    /*Accept*/ {kBad, kBad, kBad, kBad, kBad, kBad, kBad, 0,    kBad, kBad, kBad},
    /*Reject*/ {kBad, kBad, kBad, kBad, kBad, kBad, 0,    0,    0,    kBad, kBad},
    /*Establ*/ {kBad, kBad, kBad, kBad, kBad, kBad, 0,    kBad, kBad, kBad, kBad},
    /*Notify*/ {kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, 0,    kIs,  kBad},
    /*Discon*/ {kBad, kBad, kBad, kBad, kBad, kOff, 0,    kOff, 0,    0,    kOff},
    /*Join  */ {kBad, 0,    0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad},
    /*QpAttr*/ {kBad, kBad, kBad, kBad, kBad, kBad, 0,    0,    0,    0,    kBad},
    /*AfOnly*/ {0,    0,    kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad, kBad},
}};
// clang-format on

// Where a call that was let in takes the id; Count: it stays.
inline constexpr std::array<Stage, static_cast<std::size_t>(Call::Count)> kLeadsTo{
    Stage::Bound, Stage::Resolved, Stage::Routed, Stage::Listening, Stage::Count,
    Stage::Asked, Stage::Accepted, Stage::Over,   Stage::Connected, Stage::Count,
    Stage::Over,  Stage::Count,    Stage::Count,  Stage::Count};

}  // namespace detail

constexpr int verdict(Call call, Stage stage) {
    return detail::kTable[static_cast<std::size_t>(call)][static_cast<std::size_t>(stage)];
}

constexpr Stage leads_to(Call call, Stage from) {
    const Stage to = detail::kLeadsTo[static_cast<std::size_t>(call)];
    return to == Stage::Count ? from : to;
}

// The stage of one id. Calls enter() through the table; events and failures move it on by set().
class StageKeeper {
public:
    explicit StageKeeper(Stage first) : stage_(first) {}

    Stage get() const { return stage_.load(std::memory_order_acquire); }
    void set(Stage to) { stage_.store(to, std::memory_order_release); }
    // Only if it is `from`: an event that comes too late changes nothing.
    void advance(Stage from, Stage to) {
        stage_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
    }

    struct Entry {
        int verdict = 0;
        Stage before = Stage::Idle;  // Where the id goes back to if the call fails.
    };
    Entry enter(Call call) {
        Stage now = get();
        for (;;) {
            const int said = verdict(call, now);
            if (said != 0) return {said, now};
            if (stage_.compare_exchange_weak(now, leads_to(call, now), std::memory_order_acq_rel,
                                             std::memory_order_acquire))
                return {0, now};
        }
    }

private:
    std::atomic<Stage> stage_;
};

}  // namespace feroce::rdmacm
