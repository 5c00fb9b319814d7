# Run at build time (cmake -P): joins routing/report/page/*.{html,css,js} to one page and writes it as C.
#   cmake -DFOLDER=routing/report/page -DOUTPUT=page.c -P page.cmake
# The page's policy allows one script and one style by their SHA-256, so nothing that a hostile
# name could smuggle in ever runs. The digests are computed here, over exactly what is embedded.
file(READ ${FOLDER}/page.html page)
file(READ ${FOLDER}/page.css style)
set(script "")
foreach(part data heat bars routes main) # in this order: later parts use earlier ones
  file(READ ${FOLDER}/${part}.js text)
  string(APPEND script "${text}")
endforeach()

# hexadecimal digits as base64
function(base64_of hex out)
  set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(LENGTH "${hex}" left)
  set(text "")
  set(at 0)
  while(left GREATER 0)
    string(SUBSTRING "${hex}000000" ${at} 6 three)
    math(EXPR bits "0x${three}")
    foreach(shift 18 12 6 0)
      math(EXPR index "(${bits} >> ${shift}) & 63")
      string(SUBSTRING ${letters} ${index} 1 letter)
      string(APPEND text ${letter})
    endforeach()
    math(EXPR at "${at} + 6")
    math(EXPR left "${left} - 6")
  endwhile()
  string(LENGTH "${text}" length)
  if(left EQUAL -2) # two bytes in the last three
    math(EXPR length "${length} - 1")
    string(SUBSTRING "${text}" 0 ${length} text)
    string(APPEND text "=")
  elseif(left EQUAL -4)
    math(EXPR length "${length} - 2")
    string(SUBSTRING "${text}" 0 ${length} text)
    string(APPEND text "==")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

foreach(part style script)
  string(SHA256 hash "${${part}}")
  base64_of(${hash} hash)
  string(REPLACE "{{${part}_hash}}" "sha256-${hash}" page "${page}")
  string(REPLACE "{{${part}}}" "${${part}}" page "${page}")
endforeach()

file(WRITE ${OUTPUT}.html "${page}")
file(READ ${OUTPUT}.html bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n"
  bytes "${bytes}")
file(WRITE ${OUTPUT} "/* made by cmake/page.cmake from routing/report/page/ */
#include \"routing/report/export_page.h\"
const char page_template[] = {
${bytes}0};
")
