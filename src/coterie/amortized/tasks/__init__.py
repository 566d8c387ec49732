"""Tasks that networks are trained on: labelled sets of the user, sets from classes of elements, synthetic sets."""
