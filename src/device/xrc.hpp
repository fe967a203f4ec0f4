// XrcDomains: extended reliable connections, process-wide. A domain ties XRC targets to shared
// receive queues; a request names one by its number, and its completion goes to that queue's own
// completion queue. Every call takes the lock; find() is the only one on a packet's way. What
// find() returns is borrowed: whoever unregisters a queue must keep every shard from running until
// it is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/spinlock.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::device {

class XrcDomains {
public:
    static constexpr std::size_t kSrqsMax = 65536;

    std::uint32_t create();                      // Never 0.
    Result<void> destroy(std::uint32_t domain);  // EBUSY while it has receive queues.

    Result<SrqNumber> register_srq(transport::ReceiveQueue& queue, std::uint32_t domain,
                                   transport::CompletionSink& cq);
    void unregister_srq(SrqNumber number);
    // Both null if there is no such number or its domain is another.
    transport::XrcTarget find(SrqNumber number, std::uint32_t domain);

private:
    struct Entry {
        std::uint32_t domain = 0;
        transport::XrcTarget target;
    };

    static constexpr std::uint32_t kNumberMax = 0xff'ffff;  // 24 bits; 0 is none.

    Spinlock lock_;  // Guards everything below.
    std::set<std::uint32_t> domains_;
    std::map<std::uint32_t, Entry> srqs_;  // By number.
    std::uint32_t next_domain_ = 1;
    std::uint32_t next_number_ = 1;  // Only grows, then wraps: a number is not soon used again.
};

}  // namespace feroce::device
