"""Messages as bytes: the protobuf files, the code generated from them, packing and splitting."""
