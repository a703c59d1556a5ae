# Decoders of bytes from outside are the distribution's shared libraries, which its security updates replace.
find_library(SPNG spng REQUIRED)
find_library(JPEG jpeg REQUIRED)
find_library(WEBP webp REQUIRED)
find_library(WEBP_DEMUX webpdemux REQUIRED)
target_link_libraries(ibid_image ${scope} ${SPNG} ${JPEG} ${WEBP} ${WEBP_DEMUX})
