"""Models of records: ONNX files, what is checked of them, and the process that runs them."""
