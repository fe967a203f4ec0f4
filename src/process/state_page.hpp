// The state page: what a process shows of itself to the `feroce` command of the same user. It is a
// file /dev/shm/feroce-<uid>/<pid>, mode 0600, rewritten only when a reader asks (it changes the
// request word and wakes the owner) and at exit, so it costs the data path nothing.
//
// The owner maps the file and holds a record lock on it, which dies with the process and is not
// inherited: a page without a lock is that of a process that has ended. Readers use pread only and
// take nothing for granted, so neither a torn page nor a hostile one can hurt them. A sequence word
// (odd while the owner writes) tells them whether they read a whole snapshot.
//
// Beside the snapshot the page has a table of connections, written as they are made: of a process
// that was killed it says which queue pairs went with it. A slot does not: others have it later.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace feroce::process {

// Counters of round trips: after the prefix a bound in microseconds, powers of two, or `inf`. One
// counts those that were no longer than its bound and longer than the one before it.
inline constexpr char kRoundTripPrefix[] = "rtt_us_to_";
inline constexpr std::size_t kRoundTripBounds = 23;
inline constexpr char kRoundTripSum[] = "rtt_ns";  // All of them together.

struct StateCounter {
    std::string name;
    std::uint64_t value = 0;
};

// Types and states have libibverbs' numbers.
struct StateQp {
    std::uint32_t qpn = 0;
    std::uint32_t peer_qpn = 0;
    std::uint8_t type = 0;
    std::uint8_t state = 0;
    std::uint8_t path_migration_state = 0;
    std::uint8_t device = 0;        // Index into StateSnapshot::devices; beyond its end if unknown.
    std::uint32_t send_psn = 0;     // As set by modify.
    std::uint32_t receive_psn = 0;  // As set by modify.
    std::uint32_t pd = 0;
    std::uint32_t sends_outstanding = 0;
    std::uint32_t receives_posted = 0;
    std::uint32_t first_reason = 0;  // Id of a StateReason; 0 while nothing went wrong.
    std::uint64_t sends_posted = 0;  // Since creation, like the next two.
    std::uint64_t packets_sent = 0;
    std::uint64_t packets_received = 0;
    Gid source;
    Gid destination;
    // How far a reliable connection is.
    std::uint32_t next_psn = 0;            // To be sent.
    std::uint32_t unacknowledged_psn = 0;  // The oldest; equal to next_psn if nothing is.
    std::uint32_t expected_psn = 0;        // From the peer.
    std::uint32_t msn = 0;
    std::uint32_t in_flight_bytes = 0;
    std::uint32_t window_bytes = 0;  // Shared by all queue pairs to that peer.
    std::int32_t credits = -1;       // -1: the peer does not say.
    std::uint32_t path_mtu = 0;
    std::uint8_t retries_left = 0;
    std::uint8_t rnr_retries_left = 0;
    std::uint8_t by_ring = 0;  // 1: what it sends stays in this machine's memory.
    std::uint8_t reserved = 0;
    std::int32_t timer_us = -1;  // Until its timer runs out; -1 if none runs.
    std::uint64_t rtt_ns = 0;    // Smoothed; 0 before the first sample.
};

enum class StateReasonKind : std::uint8_t {
    Failure,  // A work request of ours failed.
    Refusal,  // We refused a packet of the peer, and told it.
    Notice,   // What we saw of a trouble that the peer knows as silence.
    Local,    // A trouble that concerns no peer.
};

// How many objects a process has on one device.
struct StateResources {
    std::string device;
    std::uint32_t contexts = 0;
    std::uint32_t pds = 0;
    std::uint32_t cqs = 0;
    std::uint32_t regions = 0;
    std::uint32_t srqs = 0;
};

// Why a queue pair failed, as one sentence for a person.
struct StateReason {
    std::uint32_t qpn = 0;
    std::uint32_t peer_qpn = 0;  // 0 if unknown.
    std::uint32_t psn = 0;
    StateReasonKind kind = StateReasonKind::Failure;
    bool peer_silent = false;  // Of a failure: the peer did not answer at all.
    bool with_peer = false;    // The peer may know more of it.
    bool minor = false;        // Good programs see such things too; told when they are asked for.
    Gid source = {};           // Our address and the peer's; zero if unknown.
    Gid destination = {};
    std::string sentence;
};

// How often work requests failed for one cause, since the process began.
struct StateError {
    std::string status;         // IBV_WC_...
    std::string cause;          // A word for the rule that was broken.
    bool at_responder = false;  // The peer's request, which we refused.
    std::uint64_t count = 0;
};

// Whether a reason of the other end is its part of a failure: it refused just that packet, or it
// knows why there was no answer.
bool answers(const StateReason& reason, const StateReason& failure);

struct StateSnapshot {
    std::uint32_t pid = 0;
    bool finished = false;  // Written when it closed its devices or ended: it was not killed.
    std::string command;
    std::vector<std::string> devices;
    std::vector<StateResources> resources;
    std::uint64_t network = 0;      // Its network namespace, within which slots differ.
    std::vector<SlotNumber> slots;  // In this process's QPNs.
    std::vector<StateCounter> counters;
    std::vector<StateError> errors;    // Those that happened.
    std::vector<StateReason> reasons;  // Oldest first.
    std::vector<StateQp> qps;
    std::uint32_t qps_left_out = 0;  // There are more than fit.
};

std::vector<std::byte> encode(const StateSnapshot& snapshot);
// Nothing if the bytes make no sense. Text comes out printable whatever was in it.
std::optional<StateSnapshot> decode(ByteView bytes);

// The directory of that user, who must be the caller, made if it is not there. A name that somebody
// else made, or that others may write to, is not used; there is a second one, of the caller's user
// namespace.
Result<std::string> user_directory(std::uint32_t user);

// The owner's side. One thread at a time, but for wait_for_request() and interrupt().
class StatePage {
public:
    // In the directory of that user, as whom the process entered the port.
    static Result<std::unique_ptr<StatePage>> create(std::uint32_t user);
    ~StatePage();
    StatePage(const StatePage&) = delete;
    StatePage& operator=(const StatePage&) = delete;

    bool write(ByteView snapshot);  // False if there is no room for it.
    // From now on the queue pair is connected to that peer; to none if it is 0. Any thread. The
    // younger of two queue pairs with one place in the table is known.
    void note_connection(Qpn qpn, Qpn peer);
    void forget_connections();
    // A reason at place `index` of the notes, over what was there, and how often it happened; its
    // own sentence is not used. One thread at a time. Takes no memory.
    void note(std::size_t index, const StateReason& reason, std::string_view sentence);
    void count_note(std::size_t index, std::uint32_t count);
    void remove();   // No page is left behind.
    void abandon();  // In a forked child, which has no mapping: lets go of the descriptor.

    std::uint32_t request() const;
    void wait_for_request(std::uint32_t seen);  // Until request() is no longer `seen`.
    void interrupt();

private:
    StatePage() = default;
    bool owns_descriptor() const;
    bool make_room(std::size_t size);

    std::string path_;
    int fd_ = -1;
    std::uint64_t device_ = 0;  // With inode_: whether fd_ is still ours, for programs that close
    std::uint64_t inode_ = 0;   // descriptors they do not know.
    std::byte* bytes_ = nullptr;
    std::size_t size_ = 0;  // Of the file that has memory; the mapping is as large as can be.
};

struct Connection {
    std::uint32_t qpn = 0;
    std::uint32_t peer_qpn = 0;

    bool operator==(const Connection&) const = default;
};

struct StateReading {
    std::int64_t changed_ns = 0;  // When the page was last written, by the clock of files.
    bool alive = false;           // False: the last words of a process that has ended.
    bool fresh = false;           // Written after we asked. A stopped process does not answer.
    StateSnapshot snapshot;
    std::vector<Connection> connections;  // As they are, or were when the process ended.
};

// The pages of all other processes of that user, by pid. Asks every owner at once and waits at most
// `patience` in all. Pages of processes that ended without a reason to keep them are removed on the
// way.
std::vector<StateReading> read_state_pages(std::uint32_t user, std::chrono::milliseconds patience);

// Why processes of that user can keep no pages now, as a clause; nothing if they can.
std::optional<std::string> page_trouble(std::uint32_t user);
// This process could keep no page, so what fails in it will not be known. Leaves its number behind
// where that is possible; the last few are remembered.
void mark_unkept(std::uint32_t user);
void unmark(const std::string& directory);  // It keeps one.
std::vector<std::uint32_t> unkept_processes(std::uint32_t user);

}  // namespace feroce::process
