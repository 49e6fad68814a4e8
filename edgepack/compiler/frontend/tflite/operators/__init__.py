"""How TFLite's operators become nodes of ONNX: a module for each class of them."""
