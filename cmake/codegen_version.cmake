# Writes OUTPUT: the version of the code generator, a hash of INPUTS and the LLVM version.
set(text "${LLVM}")
foreach(input ${INPUTS})
  file(SHA256 ${input} hash)
  string(APPEND text "${hash}")
endforeach()
string(SHA256 version "${text}")
string(SUBSTRING ${version} 0 16 version)
file(WRITE ${OUTPUT} "// Generated.
#pragma once

inline constexpr char kCodegenVersion[] = \"${version}\";
")
