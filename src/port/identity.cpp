#include "port/identity.hpp"

#include <unistd.h>

namespace feroce::port {

Identity Identity::capture(Sharing sharing) {
    return {static_cast<std::uint32_t>(::geteuid()), sharing};
}

}  // namespace feroce::port
