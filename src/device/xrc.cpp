#include "device/xrc.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>

namespace feroce::device {

std::uint32_t XrcDomains::create() {
    const std::lock_guard guard(lock_);
    const std::uint32_t domain = next_domain_++;
    ASSERT(domain != 0);  // Four thousand million domains in the life of one process.
    domains_.insert(domain);
    return domain;
}

Result<void> XrcDomains::destroy(std::uint32_t domain) {
    const std::lock_guard guard(lock_);
    if (!domains_.contains(domain)) return Error{EINVAL, "no such XRC domain"};
    const bool busy = std::any_of(srqs_.begin(), srqs_.end(),
                                  [&](const auto& srq) { return srq.second.domain == domain; });
    if (busy) return Error{EBUSY, "the XRC domain still has shared receive queues"};
    domains_.erase(domain);
    return {};
}

Result<SrqNumber> XrcDomains::register_srq(transport::ReceiveQueue& queue, std::uint32_t domain,
                                           transport::CompletionSink& cq) {
    const std::lock_guard guard(lock_);
    if (!domains_.contains(domain)) return Error{EINVAL, "no such XRC domain"};
    if (srqs_.size() >= kSrqsMax) return Error{ENOMEM, "too many XRC shared receive queues"};
    while (srqs_.contains(next_number_)) next_number_ = next_number_ % kNumberMax + 1;
    const SrqNumber number{next_number_};
    srqs_[number.raw] = {domain, {&queue, &cq}};
    next_number_ = next_number_ % kNumberMax + 1;
    return number;
}

void XrcDomains::unregister_srq(SrqNumber number) {
    const std::lock_guard guard(lock_);
    const std::size_t erased = srqs_.erase(number.raw);
    ASSERT(erased == 1);
}

transport::XrcTarget XrcDomains::find(SrqNumber number, std::uint32_t domain) {
    const std::lock_guard guard(lock_);
    const auto found = srqs_.find(number.raw);
    if (found == srqs_.end() || found->second.domain != domain) return {};
    return found->second.target;
}

}  // namespace feroce::device
