"""What a program did, as data, pictures and spans; and the same again without a model."""
