# A .deb of what is installed: cmake --build build && cpack --config build/CPackConfig.cmake. FPFS_PACKAGER is who answers
# for it.
set(FPFS_PACKAGER "fastpersistfs maintainers <maintainers@fastpersistfs.invalid>" CACHE STRING
    "Maintainer of the package, NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fastpersistfs)
set(CPACK_PACKAGE_VENDOR fastpersistfs)
set(CPACK_PACKAGE_CONTACT ${FPFS_PACKAGER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "FUSE filesystem for training checkpoints over several NVMe drives")
set(CPACK_PACKAGE_DESCRIPTION
"Mounted over one directory per drive, it stripes each file over all of them
(RAID-0), checks whatever is read, and makes a file durable when it is closed.
With the daemon come programs that format, check and look at an array, helpers
of mount(8) and umount(8), and units of systemd. A library for C++ writes
memory to files and reads it back by asynchronous O_DIRECT I/O; another one
saves tensors to an array that is not mounted.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # for packages of programs that link the libraries
set(CPACK_DEBIAN_PACKAGE_DEPENDS "fuse3, python3")  # python3: setup-nvme
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "xfsprogs")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3-xxhash")  # examples/read_direct
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_LIST_DIR}/postinst ${CMAKE_CURRENT_LIST_DIR}/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)

# Debian wants a changelog in its own form; what changed is in docs/changelog.md.
find_program(GZIP gzip)
if(GZIP)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  set(changelog ${CMAKE_CURRENT_BINARY_DIR}/changelog)
  file(WRITE ${changelog} "fastpersistfs (${PROJECT_VERSION}) unstable; urgency=medium

  * What changed is in /usr/share/doc/fastpersistfs/changelog.md.

 -- ${FPFS_PACKAGER}  ${date}
")
  execute_process(COMMAND ${GZIP} -9nf ${changelog} COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${changelog}.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
