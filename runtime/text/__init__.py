"""Text to tokens and back, and chat templates. Torch-free; runs in the front process."""
