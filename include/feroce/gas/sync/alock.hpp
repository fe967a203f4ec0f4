// ALock: a mutex for threads of its home node and of others, where the former never touch the
// network. Each side queues at a tail of its own (CPU atomics on one, NIC atomics on the other),
// and the heads of the two queues settle it by Peterson's algorithm, which needs reads and writes
// only; so it is right on NICs whose atomics are not atomic against the CPU's. A side hands the
// lock on within itself at most `budget` times while the other waits. models/alock.pml proves it.
//
// A free lock costs another node one round trip: the compare-and-swap of its tail and a READ of the
// other behind it; if the home node's queue was empty then, Peterson can be skipped.
//
// FairLock: the same queues guard only the drawing of a ticket, and the ticket's turn is waited
// for, so that the first caller is served first, whichever side it is on.
#pragma once

#include <optional>
#include <utility>

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class ALock : public Mutex {
public:
    struct Turn;
    // What is known after standing in the queue.
    struct Entry;
    struct Options {
        std::int64_t local_budget = 5;  // The paper's; a budget of 0 plays Peterson every time.
        std::int64_t remote_budget = 20;
        bool fast_path = true;  // False: the algorithm as published, three or four round trips.
        // Another way into the queue of other nodes; tests plant bugs here. Null: the right one.
        rdma::Task<Result<Entry>> (*enter_remote)(Turn&) = nullptr;
    };
    struct Place {
        plain<std::int64_t> budget;  // Negative: waits.
        plain<ptr<Place>> next;
    };
    struct alignas(64) Line {
        nic<ptr<Place>> remote_tail;  // Null: nobody of that side wants the lock.
        std::uint64_t unused_0 = 0;
        cpu<ptr<Place>> local_tail;
        std::uint64_t unused_1 = 0;
        plain<std::uint64_t> victim;  // The side that yields if both want it.
        std::uint64_t unused_2 = 0;
        // For FairLock.
        plain<std::uint64_t> next;   // Ticket; changed only under the queues.
        plain<std::uint64_t> owner;  // Changed only by the holder.
    };
    static_assert(sizeof(Line) == 64);
    enum Side : std::uint64_t { kLocal = 1, kRemote = 2 };
    struct Entry {
        ptr<Place> before;   // Null: head of the queue.
        bool alone = false;  // The other queue was seen empty after that.
    };

    // One thread's way through the lock, from a place in the queue to the unlock. It is a value and
    // needs nothing of the handle, so it goes on where the caller gave up.
    struct Turn {
        Lanes* lanes;
        ptr<Line> line;
        Options options;
        Line* home;                // On the home node only.
        ptr<Place> place = {};     // While it is held or waited for.
        Line seen = {};            // The line as another node read it last.
        bool wants_line = false;   // Whether to read all of it on the way in: one packet more.
        bool fresh = false;        // `seen` was read after the other queue was seen empty.
        std::uint64_t ticket = 0;  // FairLock's.

        bool is_home() const { return home != nullptr; }
        std::int64_t whole_budget() const {
            return is_home() ? options.local_budget : options.remote_budget;
        }
        Place& own() const { return *lanes->local(place); }
        Result<> take_place();
        void give_place() { lanes->give_place(std::exchange(place, nullptr)); }
        // After an error: others may still write the place, if it has one.
        void abandon_place() {
            if (std::exchange(place, nullptr)) lanes->replace_place();
        }
        rdma::Task<Result<>> lock();
        rdma::Task<Result<bool>> try_lock();
        rdma::Task<Result<>> unlock();
        rdma::Task<Result<>> hand_on();

    private:
        rdma::Task<Result<Entry>> enter_remote();
        Entry enter_home();
        rdma::Task<Result<>> wait_in_queue(ptr<Place> before);
        rdma::Task<Result<>> play_remote();
        rdma::Task<Result<>> play_home();
        rdma::Task<Result<>> play(bool alone);
    };

    ALock(Lanes& lanes, ptr<Line> line) : ALock(lanes, line, Options()) {}
    ALock(Lanes& lanes, ptr<Line> line, Options options)
        : Mutex(lanes), turn_{&lanes, line, options, lanes.local(line)} {}

private:
    rdma::Task<Result<>> locking() override;
    rdma::Task<Result<bool>> trying() override;
    rdma::Task<Result<>> unlocking() override;

    static rdma::Task<Result<Turn>> take(Turn turn);
    static rdma::Task<Result<std::optional<Turn>>> take_free(Turn turn);
    static rdma::Task<Result<>> release(Turn turn);

    Turn turn_;
};

class FairLock final : public Mutex {
public:
    using Line = ALock::Line;

    FairLock(Lanes& lanes, ptr<Line> line)
        : Mutex(lanes),
          turn_{&lanes, line, {.local_budget = 0, .remote_budget = 0}, lanes.local(line)} {
        turn_.wants_line = true;
    }

private:
    rdma::Task<Result<>> locking() override;
    rdma::Task<Result<bool>> trying() override;
    rdma::Task<Result<>> unlocking() override;

    using Turn = ALock::Turn;

    static rdma::Task<Result<Turn>> take(Turn turn);
    static rdma::Task<Result<std::optional<Turn>>> take_free(Turn turn);
    static rdma::Task<Result<>> release(Turn turn);

    Turn turn_;
};

}  // namespace feroce::gas
