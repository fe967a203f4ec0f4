// AsyncEvents: what a device tells without being asked: a queue pair that failed, a shared queue
// that runs low, a port that went down. The loop calls the handler.
//
// Each event of a device goes to one reader only, so a process has one of these for a device that
// its connections share. The device's descriptor does not block any more from then on.
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <memory>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"

namespace feroce::rdma {

class AsyncEvents {
public:
    // Called from the loop. The event is acknowledged already, so the handler may end the object
    // that it tells of; ibv_event_type_str(event.event_type) has a word for it.
    using Handler = std::function<void(const ibv_async_event& event)>;

    // `device`: Device::raw(), or Connection::device().
    static Result<AsyncEvents> watch(Loop& loop, ibv_context* device, Handler handler);

private:
    class Watch;
    struct End {
        void operator()(Watch* watch) const;
    };
    explicit AsyncEvents(Watch* watch) : watch_(watch) {}

    std::unique_ptr<Watch, End> watch_;
};

}  // namespace feroce::rdma
