#include "lint/order_trial.hpp"
#include "lint/rules.hpp"

namespace feroce::lint {

void report_order(Place place, Reporter& out) {
    out.found({Kind::ByteOrder,
               "the program went on here " + std::to_string(OrderTrial::kConvincing) +
                   " times when only the last bytes of a peer's WRITE were there, and never when "
                   "none were: it polls memory and trusts that bytes arrive in order",
               "posted", place,
               "have the peer send WRITE_WITH_IMM, or a SEND after the WRITE, and poll its "
               "completion before reading; or check all bytes, as by a checksum"});
}

}  // namespace feroce::lint
