// ControlDoor: where `feroce session` knocks: a unix datagram socket in the user's own directory,
// one a loop. A datagram is a request, words separated by NUL; its sender gets one datagram back.
// Only the user himself can reach the directory, so nobody is asked for a name.
//
// A busy loop looks only every so many rounds: a look is a system call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "feroce/loop.hpp"

namespace feroce::rtrs {

class ControlDoor final : public rdma::Source {
public:
    using Words = std::vector<std::string_view>;
    using Answer = std::function<std::string(const Words& request)>;

    // Null where the runtime has no directory, as in a simulation: then there is nobody to knock.
    static std::unique_ptr<ControlDoor> open(rdma::Loop& loop, Answer answer);
    ~ControlDoor();
    ControlDoor(const ControlDoor&) = delete;
    ControlDoor& operator=(const ControlDoor&) = delete;

    bool poll() override;
    void arm() override { look_ = true; }
    int fd() const override { return fd_; }
    void take_events() override { look_ = true; }

private:
    ControlDoor(rdma::Loop& loop, Answer answer, std::string path, int fd);
    bool serve_one();

    rdma::Loop& loop_;
    Answer answer_;
    std::string path_;
    int fd_;
    bool look_ = true;
    unsigned rounds_ = 0;
};

}  // namespace feroce::rtrs
