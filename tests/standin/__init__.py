"""A stand-in for a CUDA device: tensors say `cuda:0`, the CPU computes. See standin.py."""
