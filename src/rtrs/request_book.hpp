// The requests of a client's session and where each is: waiting for a permit, waiting for a
// path, in flight on one, or in the wreck of one that failed. Decides nothing about the network.
//
// Every request is done exactly once. Between peers of ours a request that was in flight on a path
// that failed is sent again only after the server has confirmed that the path is dead (a fence): a
// write that still travels through it could land in the chunk after the chunk was used for
// something newer. If such a request is given up instead, its permit stays with the wreck until the
// server confirms that the request has ended as well (a fence with drain). The kernel's server
// knows no fences; towards it requests are sent again at once, as the kernel's client does.
//
// Calls `done` of requests last, so what that calls in turn finds the book in order.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "feroce/list.hpp"
#include "feroce/rtrs/histogram.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/permits.hpp"
#include "rtrs/request_header.hpp"

namespace feroce::rtrs {

// The list of requests in flight on one incarnation of a path; made by the owner of that.
using InFlight = rdma::CountedList<Request>;

// How a request ends. The rest is of one that is in flight and that its caller gives up, when
// nothing touches the caller's memory any more: the server may still be at work on it.
struct Outcome {
    int error = 0;
    const char* why = "";
    // The path stays. The permit is used again after answered_late().
    bool path_stays = false;
    // The path goes as well, as path_failed() is to say with the same fence. The permit is used
    // again after fenced().
    std::optional<Fence> fence = {};
};

class RequestBook {
public:
    explicit RequestBook(std::uint16_t permits);

    // Takes a permit or waits for one.
    void submit(Request& request, Instant now);
    // The request that has waited longest for a path; nullptr if none may be sent now. One that has
    // lost several paths is suspected of taking them down: it is sent when no other suspect is in
    // flight, so that its innocent companions are answered before it has used up its attempts.
    Request* next();
    void sent(Request& request, InFlight& path);  // The one that next() gave.
    // The request with this permit, if it is in flight on this path.
    Request* in_flight(std::uint16_t permit, const InFlight& path) const;
    // Ends a request wherever it is; one that is done already stays as it is. Its permit stays away
    // as long as the server may use its chunk: if it was sent in vain until that path is fenced, if
    // it is in flight as the outcome says.
    void end(Request& request, const Outcome& outcome, Instant now);

    // The path is gone and nothing that it owned touches memory any more. With a fence its
    // requests wait for fenced(), without they wait for a path. Those that have lost so many paths
    // are exhausted; 0: this one does not count.
    void path_failed(InFlight& path, const std::optional<Fence>& fence, unsigned attempts = 0);
    void fail_exhausted(int error, const char* why, Instant now);
    // Fences that the server has yet to confirm. What was asked through a path that then failed
    // must be asked again.
    std::vector<Fence> open_fences() const;
    void fenced(const Fence& fence);

    // Gives up everything that waits for a path or in wrecks.
    void fail_waiting(int error, const char* why, Instant now);

    // The answer to a request that ended while its path stayed. False if none with this permit is
    // in flight there.
    bool answered_late(std::uint16_t permit, const InFlight& path);

    bool waits_for_path() const { return !waiting_.empty(); }
    bool idle() const;  // Nobody's request is here.
    const Permits& permits() const { return permits_; }
    const Histogram& latency() const { return latency_; }
    std::uint64_t completed() const { return completed_; }
    std::uint64_t failed() const { return failed_; }

private:
    static constexpr unsigned kSuspect = 3;  // Lost paths.

    struct Wreck {
        Fence fence;
        rdma::List<Request> requests;
        std::vector<std::uint16_t> abandoned;  // Permits of requests that were given up.
    };

    struct Holder {
        Request* request = nullptr;  // nullptr: nobody, a wreck, or left.
        // Valid if the request is in flight; with no request: of one that its caller has left.
        InFlight* path = nullptr;
        std::optional<Fence> failed_through = {};  // Where it was last sent in vain: may still run.
    };

    Wreck& wreck_of(const Fence& fence);
    void out_of_flight(Request& request, InFlight& path);
    void wait_for_path(Request& request);
    void give_back(std::uint16_t permit);
    void let_go(const Request& request, const Outcome& outcome);

    Permits permits_;
    std::vector<Holder> holders_;  // By permit.
    rdma::List<Request> waiting_;  // For a path, the longest first.
    std::list<Wreck> wrecks_;
    rdma::List<Request> exhausted_;
    std::size_t suspects_ = 0;  // In flight.
    std::uint64_t sequence_ = 0;
    std::size_t present_ = 0;  // Requests submitted and not done.
    Histogram latency_;
    std::uint64_t completed_ = 0;
    std::uint64_t failed_ = 0;
};

}  // namespace feroce::rtrs
