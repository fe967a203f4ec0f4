// Everything of the C++ library: connections, memory, awaitable operations.
#pragma once

#include "feroce/async_events.hpp"     // IWYU pragma: export
#include "feroce/bytes.hpp"            // IWYU pragma: export
#include "feroce/call.hpp"             // IWYU pragma: export
#include "feroce/connection.hpp"       // IWYU pragma: export
#include "feroce/device.hpp"           // IWYU pragma: export
#include "feroce/elsewhere.hpp"        // IWYU pragma: export
#include "feroce/inbox.hpp"            // IWYU pragma: export
#include "feroce/listener.hpp"         // IWYU pragma: export
#include "feroce/loop.hpp"             // IWYU pragma: export
#include "feroce/memory.hpp"           // IWYU pragma: export
#include "feroce/resolve.hpp"          // IWYU pragma: export
#include "feroce/runtime.hpp"          // IWYU pragma: export
#include "feroce/shared_receives.hpp"  // IWYU pragma: export
#include "feroce/shelter.hpp"          // IWYU pragma: export
#include "feroce/stop_signals.hpp"     // IWYU pragma: export
#include "feroce/task_group.hpp"       // IWYU pragma: export
#include "feroce/transfer.hpp"         // IWYU pragma: export
#include "feroce/when_all.hpp"         // IWYU pragma: export
#include "feroce/workers.hpp"          // IWYU pragma: export
