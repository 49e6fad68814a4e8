"""Operators of the domain ai.onnx.ml: what scikit-learn, XGBoost and LightGBM are exported as."""
