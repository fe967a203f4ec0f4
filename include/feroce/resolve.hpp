// Names of machines become addresses here, and nowhere else: an address that is written with
// numbers is taken as it is, any other is asked of the system's resolver (/etc/hosts, DNS), which
// may block for seconds and so never runs on a loop's thread.
//
//     auto at = co_await rdma::resolve(loop, "storage1.rack7:7471");
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "feroce/address.hpp"
#include "feroce/error.hpp"
#include "feroce/task.hpp"

namespace feroce::rdma {

class Loop;

// EINVAL if the text is neither an address nor could be the name of a machine, with or without a
// port. Asks nobody.
Result<> check_host(std::string_view text);

// All addresses of the name in the order of the resolver, at least one. If there are none, EAGAIN
// where another try may find one and ENOENT else, with a sentence. The text may have a port.
Task<Result<std::vector<Address>>> resolve(Loop& loop, std::string text);
// The same for threads that may block; not for a loop's.
Result<std::vector<Address>> resolve_blocking(std::string_view text);

}  // namespace feroce::rdma
