// Programs of two threads that use an object or a list together: without a lock, which is a mistake
// where one thread was promised or the list is filled in again, and with one.
#pragma once

namespace lint_programs {

void cq_of_two_threads();
void qp_of_two_threads();
void list_of_two_threads();
void locked_by_two_threads();
void request_used_again();

}  // namespace lint_programs
