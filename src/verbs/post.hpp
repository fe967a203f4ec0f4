// Work requests from the program's form to the engine's.
#pragma once

#include "transport/work.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

void set_send_flags(transport::SendWr& wr, unsigned int flags);

mem::WindowBind window_bind(const ibv_mw& mw, std::uint32_t new_rkey, const ibv_mw_bind_info& info);
// The window's public key, once its bind is posted: as rxe and irdma write it back.
void note_bind(ibv_mw& mw, const mem::WindowBind& bind);

}  // namespace feroce::verbs
