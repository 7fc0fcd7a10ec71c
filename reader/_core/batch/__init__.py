"""A batch: element types, tensors of every library, containers, and what travels beside arrays."""
