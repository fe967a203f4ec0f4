// SessionDirectory: the client sessions of one loop by their names, and what answers `feroce
// session` about them. Kept by clients and by sessions, so it ends with the last of either.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "feroce/loop.hpp"
#include "feroce/rtrs/options.hpp"
#include "rtrs/control_door.hpp"

namespace feroce::rtrs {

class SessionCore;

class SessionDirectory : public std::enable_shared_from_this<SessionDirectory> {
public:
    explicit SessionDirectory(rdma::Loop& loop) : loop_(loop) {}

    rdma::Loop& loop() const { return loop_; }
    // The session of this name, made if there is none.
    std::shared_ptr<SessionCore> find_or_make(const std::string& name, SessionOptions options);

private:
    std::string answer(const ControlDoor::Words& words);
    std::string change(SessionCore& session, const ControlDoor::Words& words);

    rdma::Loop& loop_;
    std::map<std::string, std::weak_ptr<SessionCore>, std::less<>> sessions_;
    std::unique_ptr<ControlDoor> door_;  // From the first session on, where there can be one.
};

}  // namespace feroce::rtrs
