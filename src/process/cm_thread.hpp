// CmThread: the thread of the connection manager. It sleeps in the rendezvous and tells the one it
// works for when there is something to do.
#pragma once

#include <atomic>
#include <memory>

#include "host/host.hpp"

namespace feroce::process {

class CmThread {
public:
    class Work {  // Without memory it leaves things for later: none of these calls throws.
    public:
        virtual ~Work() = default;
        virtual Instant before_sleep() = 0;  // Until when it may sleep.
        // Something is to be done, or the time has come. Requests may wait in the port.
        virtual void turn(bool requests_waiting) = 0;
    };

    static Result<std::unique_ptr<CmThread>> start(host::Host& host, host::Rendezvous& rendezvous,
                                                   Work& work);
    ~CmThread();  // Waits for the end of the turn.

private:
    CmThread(host::Rendezvous& rendezvous, Work& work) : rendezvous_(rendezvous), work_(work) {}
    void body();

    host::Rendezvous& rendezvous_;
    Work& work_;
    std::atomic<bool> stop_{false};  // The wake-up that follows orders it.
    std::unique_ptr<host::Task> task_;
};

}  // namespace feroce::process
