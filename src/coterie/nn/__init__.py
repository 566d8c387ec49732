"""Network layers that two or more methods use."""
