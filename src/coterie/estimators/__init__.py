"""The scikit-learn face: thin classes that hold parameters and results."""
