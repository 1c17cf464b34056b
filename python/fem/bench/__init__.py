"""`python -m fem.bench`: the speed of the reads and of the layer beside torch's attention and torch.compile."""
