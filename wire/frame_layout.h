/* The positions of the fields of frames that compiled parts read in place. */
#ifndef ODRADEK_FRAME_LAYOUT_H
#define ODRADEK_FRAME_LAYOUT_H

/* A request: size, API key and version, correlation id, length of the client id, client id. */
enum {
    FRAME_SIZE_BYTES = 4,
    FRAME_KEY_POSITION = 4,
    FRAME_CORRELATION_POSITION = 8,
    FRAME_CLIENT_ID_POSITION = 12,
    FRAME_HEAD_BYTES = 14,
    FRAME_LENGTH_MIN = 10
};

/* A response: size, correlation id; then a byte for tagged fields where the version is flexible. */
enum { RESPONSE_CORRELATION_POSITION = 4, RESPONSE_HEAD_BYTES = 8 };

#endif
