# Where things go when installed. FEROCE_PRIVATE holds the drop-in libraries: a folder of ours, so
# that nothing of the system is replaced and only `feroce run` (or who asks for it) loads them.
include(GNUInstallDirs)
set(FEROCE_PRIVATE ${CMAKE_INSTALL_LIBDIR}/feroce)
# From the folder of an installed program to that one.
file(RELATIVE_PATH FEROCE_PLACE /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${FEROCE_PRIVATE})
