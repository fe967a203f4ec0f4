// Turns a request of the caller into the one RDMA WRITE WITH IMM that carries it: finds the
// caller's memory among the registered areas or copies through staging, writes message and header
// into the permit's slot, and posts.
#pragma once

#include "base/result.hpp"
#include "feroce/rtrs/request.hpp"
#include "rtrs/channel.hpp"
#include "rtrs/geometry.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/session_memory.hpp"

namespace feroce::rtrs {

// Pieces of memory that one request gathers, message and header among them.
inline constexpr std::uint32_t kMaxGather = 16;

// Whether a session of this shape can carry the request at all; sets its data_size.
Result<void> check_request(Request& request, const Geometry& geometry, bool extended);

struct SendPlan {
    SessionMemory& memory;
    RegisteredAreas& areas;
    const Geometry& geometry;
    bool extended;
};

// False if memory could not be registered. The channel must have room for one.
bool send_request(Request& request, const SendPlan& plan, const RemoteChunk& chunk,
                  Channel& channel);

// After the answer to a read: brings data from staging to where the caller wants it.
void deliver_staged(const Request& request, SessionMemory& memory);

}  // namespace feroce::rtrs
