// Completion queues, and completions in the program's form.
#pragma once

#include "verbs/objects.hpp"

namespace feroce::verbs {

// `wc_flags` picks the read_* functions of an extended queue; 0 for a plain one.
ibv_cq_ex* make_cq(ibv_context* context, const ibv_cq_init_attr_ex& attributes);

// Makes progress if need be; true if there are completions to take.
bool look_for_completions(Cq& cq);

unsigned int wc_flags(const transport::Completion& c);
std::uint8_t service_level(const transport::Completion& c);
std::uint32_t immediate_or_key(const transport::Completion& c);  // As it stands in ibv_wc.

}  // namespace feroce::verbs
