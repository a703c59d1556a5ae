// The folder for files that ibid can make or fetch again.
#pragma once

#include <string>

namespace ibid {

// $XDG_CACHE_HOME/ibid, else ~/.cache/ibid. Not created here. Relative values of XDG_CACHE_HOME are ignored, as the XDG
// base directory specification requires. Reads the environment: call it before other threads change it.
std::string cache_folder();

}  // namespace ibid
