#include "lint/rules.hpp"

namespace feroce::lint {

void report_crowd(const std::string& call, Place place, Reporter& out) {
    out.found({Kind::TwoThreads,
               call +
                   " while another thread was in a call on it, but its caller promised one thread "
                   "at a time (a thread domain, or IBV_CREATE_CQ_ATTR_SINGLE_THREADED): a card's "
                   "library takes no lock then",
               "called", place,
               "hold a lock around the calls, give each thread an object of its own, or create it "
               "without the promise"});
}

void report_changed_list(const char* call, std::uint64_t address, Place place, Reporter& out) {
    out.found({Kind::TwoThreads,
               "the list of work requests at " + hex(address) + " was changed while " + call +
                   " read it: threads share it, and another one fills it in",
               "called", place,
               "give each thread work requests of its own, or hold a lock from filling them in "
               "until the call returns"});
}

}  // namespace feroce::lint
