"""Folders and arrays of images, brought to the size that a network takes."""
