# Installs README.md and the documents of docs/ side by side. Their links lead to each other there, and to the examples;
# those to what only the source has become its path, in words. SOURCE: the source's directory; PLACE: where they go.
function(install_document from to out)
  file(READ ${from} text)
  string(REGEX REPLACE "\\]\\(docs/" "](" text "${text}")  # of the README
  string(REGEX REPLACE "\\]\\(${out}README\\.md" "](README.md" text "${text}")
  string(REGEX REPLACE "\\[[^]]*\\]\\(${out}engine/[a-z]+/([a-z]+\\.h)\\)" "`<fastpersist/\\1>`" text "${text}")
  string(REGEX REPLACE "\\[[^]]*\\]\\(${out}(tools/examples|mount-scripts/slurm|mount-scripts/kubernetes)/([^)]*)\\)"
                       "[`examples/\\2`](examples/\\2)" text "${text}")
  string(REGEX REPLACE "\\[[^]]*\\]\\(${out}mount-scripts/monitoring/\\)" "[`monitoring`](monitoring)" text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\(${out}([^)]*)\\)" "\\1 (`\\2` of the source)" text "${text}")
  file(WRITE ${to} "${text}")
endfunction()

file(GLOB guides RELATIVE ${SOURCE}/docs ${SOURCE}/docs/*.md)
file(GLOB rows RELATIVE ${SOURCE}/docs ${SOURCE}/docs/*/*.md)
foreach(guide ${guides})
  install_document(${SOURCE}/docs/${guide} ${PLACE}/${guide} "\\.\\./")
endforeach()
foreach(row ${rows})
  install_document(${SOURCE}/docs/${row} ${PLACE}/${row} "\\.\\./\\.\\./")
endforeach()
install_document(${SOURCE}/README.md ${PLACE}/README.md "\\.\\./")
