"""Networks and ONNX models."""
