// A failing send of an unreliable queue pair: IBTA has it go to SQE, where sends are flushed and
// receives go on, until the program brings it back to RTS.
#pragma once

#include "base/psn.hpp"
#include "base/time.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

struct SendFailure {
    Rule rule = Rule::None;
    WcStatus status = WcStatus::LocalLengthError;
    mem::Fault fault = mem::Fault::None;
};

// An SGE that could not be read.
SendFailure key_failure(mem::Fault fault);

// The oldest send completes with the failure, signalled or not; the others are flushed.
void fail_unreliable_send(Instant now, QueuePair& qp, Psn psn, const SendFailure& failure);

}  // namespace feroce::transport
