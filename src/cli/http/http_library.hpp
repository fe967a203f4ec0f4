// The functions of libmicrohttpd that we call. It is loaded only where it is used: with its own
// libraries it would make every start of `feroce run` 3 ms longer.
#pragma once

#include <microhttpd.h>

namespace feroce::cli {

struct HttpLibrary {
    decltype(&MHD_start_daemon) start_daemon = nullptr;
    decltype(&MHD_stop_daemon) stop_daemon = nullptr;
    decltype(&MHD_create_response_from_buffer_with_free_callback_cls) create_response = nullptr;
    decltype(&MHD_destroy_response) destroy_response = nullptr;
    decltype(&MHD_add_response_header) add_header = nullptr;
    decltype(&MHD_queue_response) queue_response = nullptr;
    decltype(&MHD_lookup_connection_value) lookup_value = nullptr;
    decltype(&MHD_get_connection_info) connection_info = nullptr;
};

// Null if it is not installed. Stays loaded.
const HttpLibrary* http_library();

}  // namespace feroce::cli
