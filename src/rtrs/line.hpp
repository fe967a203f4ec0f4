// What both ends of a path are made of: lines, and the timer of the heartbeat.
#pragma once

#include <memory>
#include <optional>

#include "feroce/connection.hpp"
#include "feroce/suspension.hpp"
#include "rtrs/channel.hpp"

namespace feroce::rtrs {

// A connection and what runs over it. The channel's memory must outlive what the connection posted.
struct Line {
    std::unique_ptr<Channel> channel;
    std::optional<rdma::Connection> connection;
};

class Beat : public rdma::Timer {
public:
    class Owner {
    public:
        virtual void on_beat() = 0;

    protected:
        ~Owner() = default;
    };

    Beat(rdma::Loop& loop, Owner& owner)
        : Timer(loop, [](Timer& timer) { static_cast<Beat&>(timer).owner_.on_beat(); }),
          owner_(owner) {}

private:
    Owner& owner_;
};

}  // namespace feroce::rtrs
