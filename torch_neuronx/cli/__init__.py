"""The command ``torch-neuronx`` (also ``python -m torch_neuronx``).

Exit codes: 0, all is well; 1, something is wrong and was said; 2, wrong usage; 130, interrupted.
Results go to standard output, errors to standard error.
"""
