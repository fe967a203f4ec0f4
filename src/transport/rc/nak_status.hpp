// How a refusal is called in the completion of who was refused; the refusing end calls it the same
// when it explains itself.
#pragma once

#include "transport/work.hpp"
#include "wire/aeth.hpp"

namespace feroce::transport::rc {

inline WcStatus status_of(wire::NakCode code) {
    switch (code) {
        case wire::NakCode::InvalidRequest:
            return WcStatus::RemoteInvalidRequestError;
        case wire::NakCode::RemoteAccess:
            return WcStatus::RemoteAccessError;
        case wire::NakCode::RemoteOperational:
            return WcStatus::RemoteOperationError;
        default:
            return WcStatus::BadResponseError;
    }
}

}  // namespace feroce::transport::rc
